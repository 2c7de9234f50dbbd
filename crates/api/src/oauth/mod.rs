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

use crate::http::bodies::{Bodies, Gathered, gather};
use crate::http::error::Error;
use crate::http::listed::Listed;
use auth::Auth;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::{Extension, Router};
use http::request::Parts;
use std::convert::Infallible;
use types::Remote;

/// Bytes of a token request or a form.
const BODY_MAX: usize = 64 * 1024;

/// The routes of the table, with what surrounds them.
pub(crate) fn router(routes: Listed<Auth>, auth: Auth, bodies: Bodies) -> Router {
    routes
        .router
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .layer(Extension(bodies))
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

/// The body of a request, if it is not too long. Nobody who sends one is known yet.
pub(crate) struct Body(Gathered);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let room = Bodies::at(request.extensions()).of_stranger(request.extensions());
        gather(request.into_body(), BODY_MAX, room).await.map(Self)
    }
}
