//! OAuth 2.0 over HTTP: the token endpoint and its relatives, and the pages that people see.
//!
//! Everything is decided in [`auth`]; here are addresses, headers, forms and pages. The endpoints
//! for programs are under both `/oauth` and `/v0/oauth`; pages are under `/oauth` only, because
//! cookies belong to one path.

mod authorize;
mod browser;
mod clients;
mod devices;
mod endpoints;
mod join;
mod outside;
mod page;
mod sign_in;

use crate::http::error::Error;
use crate::http::listed::Listed;
use crate::http::malformed::Malformed;
use auth::Auth;
use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::request::Parts;
use std::convert::Infallible;
use types::Remote;

/// Bytes of a token request or a form.
const BODY_MAX: usize = 64 * 1024;

pub(crate) fn router(auth: Auth) -> Router {
    routes()
        .router
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(auth)
}

pub(crate) fn routes() -> Listed<Auth> {
    endpoints_under("/v0")
        .merge(endpoints_under(""))
        .merge(pages())
        .get("/v0/oauth/authorize", authorize::elsewhere)
        .get("/v0/oauth/clients", clients::list)
        .post("/v0/oauth/clients", clients::create)
        .delete("/v0/oauth/clients/{id}", clients::remove)
}

fn endpoints_under(base: &str) -> Listed<Auth> {
    Listed::new()
        .post(format!("{base}/oauth/token"), endpoints::token)
        .post(format!("{base}/oauth/device/code"), endpoints::device)
        .post(format!("{base}/oauth/device_authorization"), endpoints::device)
        .post(format!("{base}/login/device"), endpoints::device)
        .post(format!("{base}/oauth/revoke"), endpoints::revoke)
        .get(format!("{base}/oauth/userinfo"), endpoints::user_info)
        .post(format!("{base}/oauth/userinfo"), endpoints::user_info)
        .get(format!("{base}/oauth/jwks"), endpoints::jwks)
        .get(format!("{base}/.well-known/openid-configuration"), endpoints::metadata)
        .get(format!("{base}/.well-known/oauth-authorization-server"), endpoints::metadata)
}

fn pages() -> Listed<Auth> {
    Listed::new()
        .get("/oauth/style.css", page::style)
        .get("/oauth/authorize", authorize::show)
        .post("/oauth/authorize", authorize::decide)
        .get("/oauth/sign-in", sign_in::show)
        .post("/oauth/sign-in", sign_in::submit)
        .post("/oauth/sign-out", sign_in::sign_out)
        .get("/oauth/outside", outside::begin)
        .get("/oauth/outside/callback", outside::finish)
        .get("/oauth/device", devices::show)
        .post("/oauth/device", devices::decide)
        .get("/oauth/join", join::show)
        .post("/oauth/join", join::submit)
}

/// Who sent a request, as whoever accepted its connection noted.
struct From(Remote);

impl<S: Send + Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().copied().unwrap_or(Remote::UNKNOWN)))
    }
}

/// The body of a request, if it is not too long.
struct Body(Bytes);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, state: &S) -> Result<Self, Error> {
        let read = Bytes::from_request(request, state).await;
        read.map(Self).map_err(|rejection| match rejection.status() {
            http::StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge { limit: BODY_MAX },
            _ => Malformed::CutBody.into(),
        })
    }
}
