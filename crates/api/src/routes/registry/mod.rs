//! The registry of the workspaces' own images: the protocol of `docker`, `podman`, `buildah` and
//! `skopeo`, below `/v2/`. It is not an operation of the table, because its addresses, errors and
//! credentials are those of that protocol.
//!
//! Callers authenticate with an API key or an access token, either as the password of any user name
//! or as a bearer token, or with a registry token for one repository ([`token`]). Content can only
//! be read and written through repositories: the digest of another workspace's content gives no
//! access to it.

mod blobs;
mod error;
mod lists;
mod manifests;
mod path;
mod token;
mod uploads;

use crate::app::App;
use crate::http::call::note_sign_in;
use crate::http::error::Error;
use crate::http::headers;
use crate::http::long_request::LongRequest;
use auth::registry_tokens::{Access, Action, Bond};
use auth::{Denied, Identity, Member, Ticket};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use control::Context;
use control::registry::Registry;
use control::repositories::{self, Located};
use error::Refusal;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use path::{Act, Name, Wanted};
use std::sync::Arc;
use store::Tx;
use types::Scope;
use types::ids::WorkspaceId;
use types::own_image::OwnRepository;

const BASE: &str = "/v2/";
const VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

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
            let session = caller.enter(name, scopes, &parts).await?;
            session.act(act, &parts, body).await
        }
    }
}

/// Returns the scopes that an act needs, or a refusal if there is no such act.
fn scopes(method: &Method, act: &Act) -> Result<&'static [Scope], Refusal> {
    Ok(match (act, method.as_str()) {
        (Act::Tags, "GET" | "HEAD") => &[Scope::ImagesList],
        (Act::Manifest(_) | Act::Blob(_) | Act::Referrers(_), "GET" | "HEAD") => {
            &[Scope::ImagesGet]
        }
        (Act::Manifest(_), "PUT")
        | (Act::Uploads, "POST")
        | (Act::Upload(_), "GET" | "HEAD" | "PATCH" | "PUT" | "DELETE") => &[Scope::ImagesCreate],
        (Act::Manifest(_) | Act::Blob(_), "DELETE") => &[Scope::ImagesDelete],
        _ => return Err(Refusal::no_method()),
    })
}

fn reads(method: &Method) -> Result<(), Refusal> {
    if matches!(*method, Method::GET | Method::HEAD) { Ok(()) } else { Err(Refusal::no_method()) }
}

/// Returns the password of Basic authentication, whatever the user name.
fn password(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    Some(password.to_owned()).filter(|password| !password.is_empty())
}

struct Caller {
    app: App,
    identity: Arc<Identity>,
    shown: Shown,
}

/// The credentials that the caller presented.
enum Shown {
    /// A key or an access token, valid for everything that its holder may do.
    Credential(String),
    /// A registry token, valid for what it was issued for.
    Token { access: Vec<Access>, bond: Bond },
}

impl Caller {
    async fn of(app: App, parts: &Parts) -> Result<Self, Refusal> {
        let bearer = headers::bearer(&parts.headers);
        let ours = match bearer {
            Some(token) => app.auth.identify_registry(token).await.map_err(Refusal::bad_token)?,
            None => None,
        };
        let (identity, shown) = match ours {
            Some(ours) => (ours.identity, Shown::Token { access: ours.access, bond: ours.bond }),
            None => {
                let credential = bearer.map(str::to_owned);
                let credential = credential.or_else(|| password(&parts.headers));
                let credential = credential.ok_or(Denied::Missing)?;
                (app.auth.identify(&credential).await?, Shown::Credential(credential))
            }
        };
        app.limits.take_key(identity.holder()).map_err(Error::from)?;
        note_sign_in(&parts.extensions, Some(&identity));
        Ok(Self { app, identity, shown })
    }

    fn member(&self, workspace: &str, scopes: &'static [Scope]) -> Result<Member, Refusal> {
        let member = self.app.auth.enter(&self.identity, Some(workspace))?;
        self.app.limits.take_workspace(member.workspace.as_str()).map_err(Error::from)?;
        member.may(scopes)?;
        Ok(member)
    }

    /// Like [`member`](Self::member), for something done in a repository: a registry token must
    /// have been issued for it.
    fn member_at(&self, name: &Name, scopes: &'static [Scope]) -> Result<Member, Refusal> {
        let given = match &self.shown {
            Shown::Credential(_) => None,
            Shown::Token { access, .. } => {
                let place = given_for(access, name, token::action(scopes));
                Some(place.ok_or_else(Refusal::beyond_token)?)
            }
        };
        let member = self.member(&name.workspace, scopes)?;
        // Another workspace may have taken over the name.
        if given.is_some_and(|given| *given != member.workspace) {
            return Err(Refusal::beyond_token());
        }
        Ok(member)
    }

    fn ticket(&self, member: &Member, scopes: &'static [Scope]) -> Ticket {
        match &self.shown {
            Shown::Credential(credential) => Ticket::new(credential, member, scopes),
            Shown::Token { bond, .. } => Ticket::of_registry(bond, member, scopes),
        }
    }

    async fn enter(
        self,
        name: Name,
        scopes: &'static [Scope],
        parts: &Parts,
    ) -> Result<Session, Refusal> {
        let member = self.member_at(&name, scopes)?;
        let app = &self.app;
        let none =
            || Refusal::new(StatusCode::NOT_FOUND, "UNSUPPORTED", "this server keeps no images");
        let registry = app.machine().and_then(|machine| machine.registry()).ok_or_else(none)?;
        let context = Context { control: app.control().clone(), member };
        let (repository, located) = locate(&context, &name).await?;
        let ticket = Arc::new(self.ticket(&context.member, scopes));
        let long = parts.extensions.get::<LongRequest>().cloned().unwrap_or_default();
        Ok(Session { caller: self, context, registry, name, repository, located, ticket, long })
    }
}

/// Returns the workspace of the repository that a token was issued for, if it covers this action
/// there.
fn given_for<'a>(access: &'a [Access], name: &Name, action: Action) -> Option<&'a WorkspaceId> {
    let name = name.to_string();
    access.iter().find_map(|access| match access {
        Access::Repository { name: known, workspace, actions } => {
            (*known == name && actions.contains(&action)).then_some(workspace)
        }
        Access::Catalog => None,
    })
}

/// Finds the repository that a name means in the workspace, and where its content is.
async fn locate(context: &Context, name: &Name) -> Result<(OwnRepository, Located), Refusal> {
    let (of, name) = (context.clone(), name.clone());
    let work = move |tx: &mut Tx<'_>| {
        let repository = match name.repository() {
            Some(repository) => repository,
            None => repositories::of_any_type(&of, tx, &name.name)?,
        };
        let Ok(repository) = repository else { return Ok(Err(repository)) };
        let located = repositories::locate(&of, tx, &repository)?;
        Ok::<_, control::Error>(Ok((repository, located)))
    };
    match context.control.store.read(work).await? {
        Ok(found) => Ok(found),
        Err(Err(bad)) => Err(bad.into()),
        Err(Ok(_)) => Err(Refusal::no_name()),
    }
}

/// A request to a repository that the caller is allowed to make.
struct Session {
    caller: Caller,
    context: Context,
    registry: Arc<dyn Registry>,
    /// As the caller wrote it, for addresses in answers.
    name: Name,
    repository: OwnRepository,
    located: Located,
    /// The credentials of the request: content is sent only as long as they are valid.
    ticket: Arc<Ticket>,
    long: LongRequest,
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

    /// Fails if the image is shared by another workspace, which alone can change it.
    fn require_own(&self) -> Result<(), Refusal> {
        if self.located.is_shared(&self.context) {
            let why = "another workspace shares this image, and alone can change it";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "DENIED", why));
        }
        Ok(())
    }

    fn address(&self, rest: &str) -> HeaderValue {
        header_of(&format!("{BASE}{}/{rest}", self.name))
    }
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Builds a header value. Such texts consist only of parts of a path and of digits.
fn header_of(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, text, "a header of the registry cannot be written");
        HeaderValue::from_static("")
    })
}

/// Returns one parameter of the query.
fn parameter(parts: &Parts, name: &str) -> Option<String> {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let found = form_urlencoded::parse(query).find(|(known, _)| known == name);
    found.map(|(_, value)| value.into_owned())
}
