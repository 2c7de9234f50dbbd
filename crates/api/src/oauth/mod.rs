//! OAuth 2.0 over HTTP: the token endpoint and its relatives, and the pages that people see.
//!
//! Everything is decided in [`auth`]; here are addresses, headers, forms and pages. The endpoints
//! for programs are under both `/oauth` and `/v0/oauth`; pages are under `/oauth` only, because
//! cookies belong to one path.

pub(crate) mod authorize;
mod browser;
pub(crate) mod clients;
pub(crate) mod devices;
pub(crate) mod endpoints;
pub(crate) mod join;
pub(crate) mod outside;
pub(crate) mod page;
pub(crate) mod sign_in;

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

/// The routes of the table, with what surrounds them.
pub(crate) fn router(routes: Listed<Auth>, auth: Auth) -> Router {
    routes
        .router
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(auth)
}

/// Who sent a request, as whoever accepted its connection noted.
pub(crate) struct From(Remote);

impl<S: Send + Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().copied().unwrap_or(Remote::UNKNOWN)))
    }
}

/// The body of a request, if it is not too long.
pub(crate) struct Body(Bytes);

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
