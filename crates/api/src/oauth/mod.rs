//! OAuth 2.0 over HTTP: the token endpoint and related ones, and the pages that people see.
//!
//! All decisions are made in [`auth`]; this module has addresses, headers, forms and pages. The
//! endpoints for programs are under both `/oauth` and `/v0/oauth`; pages are under `/oauth` only,
//! because cookies are bound to one path.

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
use crate::http::headers;
use crate::http::limits::Limits;
use crate::http::listed::Listed;
use auth::{Auth, Denied, Identity};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::{Extension, Router};
use http::HeaderMap;
use http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;
use types::Remote;

/// Largest token request or form, in bytes.
const BODY_MAX: usize = 64 * 1024;

/// Builds the router for the routes of the table.
pub(crate) fn router(
    routes: Listed<Auth>,
    auth: Auth,
    bodies: Bodies,
    limits: Arc<Limits>,
) -> Router {
    routes
        .router
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .layer(Extension(bodies))
        .layer(Extension(limits))
        .with_state(auth)
}

/// The sender of a request, as recorded when its connection was accepted.
pub(crate) struct From(Remote);

impl<S: Send + Sync> FromRequestParts<S> for From {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().copied().unwrap_or(Remote::UNKNOWN)))
    }
}

/// Who calls with a key or a token. The request is counted against the rate of the key, or of the
/// person behind the token, as those of operations are.
pub(crate) struct Caller(Arc<Identity>);

impl FromRequestParts<Auth> for Caller {
    type Rejection = Error;

    #[expect(clippy::expect_used, reason = "the router of these pages adds the limits")]
    async fn from_request_parts(parts: &mut Parts, auth: &Auth) -> Result<Self, Error> {
        let who = identify(auth, &parts.headers).await?;
        let limits: &Arc<Limits> = parts.extensions.get().expect("the router adds them");
        limits.take_key(who.holder())?;
        Ok(Self(who))
    }
}

/// Returns who calls, without counting the request.
pub(crate) async fn identify(auth: &Auth, headers: &HeaderMap) -> Result<Arc<Identity>, Error> {
    let token = headers::bearer(headers).ok_or(Denied::Missing)?;
    Ok(auth.identify(token).await?)
}

/// The body of a request, if it is not too long. Its sender is not known yet.
pub(crate) struct Body(Gathered);

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let room = Bodies::at(request.extensions()).of_stranger(request.extensions());
        gather(request.into_body(), BODY_MAX, room).await.map(Self)
    }
}
