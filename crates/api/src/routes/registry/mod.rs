//! The registry of the workspaces' own images: the protocol of `docker`, `podman`, `buildah` and
//! `skopeo`, below `/v2/`. It is not an operation of the table, because its addresses, errors and
//! credentials are those of that protocol.
//!
//! Callers authenticate with an API key or an access token, either as the password of any user name
//! or as a bearer token, or with a registry token for one repository ([`token`]). Content can only
//! be read and written through repositories: the digest of another workspace's content gives no
//! access to it.

mod answers;
mod blobs;
mod caller;
mod error;
mod lists;
mod manifests;
mod path;
mod session;
mod token;
mod uploads;

use crate::app::App;
use answers::empty;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use caller::Caller;
use error::Refusal;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use path::{Act, BASE, Wanted, scopes};
use session::Session;

const VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// The addresses that are served here. `type` may be omitted.
#[rustfmt::skip]
pub(crate) const ADDRESSES: [(Method, &str); 17] = [
    (Method::GET, "/v2/"),
    (Method::GET, "/v2/token"),
    (Method::GET, "/v2/_catalog"),
    (Method::GET, "/v2/{workspace}/{type}/{name}/tags/list"),
    (Method::GET, "/v2/{workspace}/{type}/{name}/manifests/{reference}"),
    (Method::PUT, "/v2/{workspace}/{type}/{name}/manifests/{reference}"),
    (Method::DELETE, "/v2/{workspace}/{type}/{name}/manifests/{reference}"),
    (Method::GET, "/v2/{workspace}/{type}/{name}/blobs/{digest}"),
    (Method::DELETE, "/v2/{workspace}/{type}/{name}/blobs/{digest}"),
    (Method::POST, "/v2/{workspace}/{type}/{name}/blobs/uploads/"),
    (Method::GET, "/v2/{workspace}/{type}/{name}/blobs/uploads/{upload}"),
    (Method::PATCH, "/v2/{workspace}/{type}/{name}/blobs/uploads/{upload}"),
    (Method::PUT, "/v2/{workspace}/{type}/{name}/blobs/uploads/{upload}"),
    (Method::DELETE, "/v2/{workspace}/{type}/{name}/blobs/uploads/{upload}"),
    (Method::GET, "/v2/{workspace}/{type}/{name}/referrers/{digest}"),
    (Method::GET, "/v2/{workspace}/{name}/tags/list"),
    (Method::GET, "/v2/{workspace}/{name}/manifests/{reference}"),
];

/// Answers everything below `/v2`.
pub(crate) async fn answer(State(app): State<App>, request: Request) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let public_url = app.control().settings.public_url.clone();
    let mut response = match Box::pin(serve(app, request)).await {
        Ok(response) => response,
        Err(refusal) if refusal.wants_credentials() => {
            let fault = refusal.token_fault;
            let challenge = token::challenge(&public_url, (&method, &uri), fault);
            refusal.with(header::WWW_AUTHENTICATE, challenge).into_response()
        }
        Err(refusal) => refusal.into_response(),
    };
    response.headers_mut().insert(VERSION, HeaderValue::from_static("registry/2.0"));
    response
}

async fn serve(app: App, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let caller = Caller::of(app, &parts).await?;
    // Only callers that are admitted learn whether the address is valid.
    let path = parts.uri.path().strip_prefix(BASE).unwrap_or_default();
    match path::parse(path).ok_or_else(Refusal::no_route)? {
        Wanted::Base => reads(&parts.method).map(|()| empty(StatusCode::OK)),
        Wanted::Token => {
            reads(&parts.method)?;
            token::give(&caller, &parts).await
        }
        Wanted::Catalog => {
            reads(&parts.method)?;
            lists::catalog(&caller, &parts).await
        }
        Wanted::In(name, act) => {
            let scopes = scopes(&parts.method, &act)?;
            let session = Session::open(caller, name, scopes, &parts).await?;
            session.act(act, &parts, body).await
        }
    }
}

fn reads(method: &Method) -> Result<(), Refusal> {
    if matches!(*method, Method::GET | Method::HEAD) { Ok(()) } else { Err(Refusal::no_method()) }
}

impl Session {
    async fn act(self, act: Act, parts: &Parts, body: Body) -> Result<Response, Refusal> {
        match (act, parts.method.as_str()) {
            (Act::Tags, _) => lists::tags(&self, parts),
            (Act::Referrers(digest), _) => lists::referrers(&self, &digest, parts).await,
            (Act::Manifest(at), "GET" | "HEAD") => manifests::get(&self, &at, parts).await,
            (Act::Manifest(at), "PUT") => manifests::put(&self, &at, parts, body).await,
            (Act::Manifest(at), _) => manifests::remove(&self, &at).await,
            (Act::Blob(digest), "GET" | "HEAD") => blobs::get(self, digest, parts).await,
            (Act::Blob(digest), _) => blobs::remove(&self, digest).await,
            (Act::Uploads, _) => uploads::begin(&self, parts, body).await,
            (Act::Upload(id), "PATCH") => uploads::append(&self, id, parts, body).await,
            (Act::Upload(id), "PUT") => uploads::finish(&self, id, parts, body).await,
            (Act::Upload(id), "DELETE") => uploads::cancel(&self, id).await,
            (Act::Upload(id), _) => uploads::progress(&self, id).await,
        }
    }
}
