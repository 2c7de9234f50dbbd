//! OAuth 2.0 over HTTP: the token endpoint and its relatives, and the pages that people see.
//!
//! Everything is decided in [`auth`]; here are addresses, headers, forms and pages. The endpoints for programs are
//! under both `/oauth` and `/v0/oauth`; pages are under `/oauth` only, because cookies belong to one path.

mod authorize;
mod browser;
mod clients;
mod devices;
mod endpoints;
mod join;
mod outside;
mod page;
mod sign_in;

use crate::error::Error;
use auth::Auth;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use axum::routing::{delete, get, post};
use bytes::Bytes;

/// Bytes of a token request or a form.
const BODY_MAX: usize = 64 * 1024;

pub(crate) fn router(auth: Auth) -> Router {
    endpoints_under("/v0")
        .merge(endpoints_under(""))
        .merge(pages())
        .route("/v0/oauth/authorize", get(authorize::elsewhere))
        .route("/v0/oauth/clients", get(clients::list).post(clients::create))
        .route("/v0/oauth/clients/{id}", delete(clients::remove))
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(auth)
}

fn endpoints_under(base: &str) -> Router<Auth> {
    Router::new()
        .route(&format!("{base}/oauth/token"), post(endpoints::token))
        .route(&format!("{base}/oauth/device/code"), post(endpoints::device))
        .route(&format!("{base}/oauth/device_authorization"), post(endpoints::device))
        .route(&format!("{base}/login/device"), post(endpoints::device))
        .route(&format!("{base}/oauth/revoke"), post(endpoints::revoke))
        .route(&format!("{base}/oauth/userinfo"), get(endpoints::user_info).post(endpoints::user_info))
        .route(&format!("{base}/oauth/jwks"), get(endpoints::jwks))
        .route(&format!("{base}/.well-known/openid-configuration"), get(endpoints::metadata))
        .route(&format!("{base}/.well-known/oauth-authorization-server"), get(endpoints::metadata))
}

fn pages() -> Router<Auth> {
    Router::new()
        .route("/oauth/style.css", get(page::style))
        .route("/oauth/authorize", get(authorize::show).post(authorize::decide))
        .route("/oauth/sign-in", get(sign_in::show).post(sign_in::submit))
        .route("/oauth/sign-out", post(sign_in::sign_out))
        .route("/oauth/outside", get(outside::begin))
        .route("/oauth/outside/callback", get(outside::finish))
        .route("/oauth/device", get(devices::show).post(devices::decide))
        .route("/oauth/join", get(join::show).post(join::submit))
}

/// The body of a request, if it is not too long.
struct Body(Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|rejection| match rejection.status() {
            http::StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge { limit: BODY_MAX },
            _ => Error::Malformed("the body ended before its announced length".into()),
        })
    }
}
