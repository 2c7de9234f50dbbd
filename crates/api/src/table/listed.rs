//! The addresses that are not operations: OAuth with its pages, webhooks, uploads, the OpenAPI
//! document, and triggers.

use crate::app::App;
use crate::http::listed::Listed;
use crate::oauth::{authorize, clients, devices, endpoints, join, outside, page, sign_in};
use crate::openapi;
use crate::routes::{uploads, webhooks};
use ::jobs::runners::Runners;
use auth::Auth;
use control::builds::UPLOADS_PATH;

/// The addresses of triggers. Only the store knows which `trigger` a path names.
pub(crate) const TRIGGERS: [&str; 2] = ["/{workspace}/{trigger}", "/run/{workspace}/{trigger}"];

/// The OpenAPI document with the page to try it out, and the page that explains errors of the edge.
pub(crate) fn documents() -> Listed<()> {
    Listed::new()
        .get("/v0/openapi.json", openapi::served)
        .get("/v0/docs", openapi::page)
        .get("/v0/docs/page.js", openapi::script)
        .get("/v0/docs/page.css", openapi::style)
        .get(openapi::EDGE_ERRORS, openapi::edge_errors)
}

/// The address for uploading sources. The secret in it is the only credential.
pub(crate) fn uploads() -> Listed<App> {
    Listed::new().put(format!("{UPLOADS_PATH}/{{secret}}"), uploads::take)
}

/// The address where code hosts report on the jobs of workflows.
pub(crate) fn webhooks() -> Listed<Runners> {
    Listed::new().post("/v0/webhooks/github/{workspace}", webhooks::take)
}

/// Endpoints for programs, under both bases, and pages for people.
pub(crate) fn oauth() -> Listed<Auth> {
    oauth_endpoints("/v0")
        .merge(oauth_endpoints(""))
        .get("/v0/oauth/authorize", authorize::elsewhere)
        .get("/v0/oauth/clients", clients::list)
        .post("/v0/oauth/clients", clients::create)
        .delete("/v0/oauth/clients/{id}", clients::remove)
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

fn oauth_endpoints(base: &str) -> Listed<Auth> {
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
