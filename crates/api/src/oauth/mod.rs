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

use auth::Auth;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{delete, get, post};

/// Bytes of a token request or a form.
const BODY_MAX: usize = 64 * 1024;

pub(crate) fn router(auth: Auth) -> Router {
    endpoints_under("/v0")
        .merge(endpoints_under(""))
        .merge(pages())
        .route("/v0/oauth/authorize", get(authorize::elsewhere))
        .route("/v0/oauth/clients", get(clients::list).post(clients::create))
        .route("/v0/oauth/clients/{id}", delete(clients::remove))
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
