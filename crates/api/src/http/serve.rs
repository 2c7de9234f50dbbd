//! The router of everything that is served: the operations, and the addresses that are listed beside
//! them.

use super::operation_router::{PREFIXES, operations};
use crate::app::App;
use crate::http::error::Error;
use crate::http::harden::harden;
use crate::routes::{registry, s3};
use crate::table;
use axum::{Extension, Router};
use http::Method;
use jobs::runners::Runners;
use std::sync::Arc;

/// Builds the router of the management API.
pub fn router(app: App) -> Router {
    let (bodies, limits) = (app.bodies.clone(), Arc::clone(&app.limits));
    let oauth = crate::oauth::router(table::oauth(), app.auth.clone(), bodies, limits);
    let uploads = table::uploads()
        .router
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .with_state(app.clone());
    operations(app)
        .merge(uploads)
        .merge(table::documents().router)
        .merge(oauth)
        .layer(axum::middleware::map_response(harden))
}

/// Builds the router for webhooks, by which workflows report on their jobs.
pub fn webhooks(runners: Runners, app: &App) -> Router {
    table::webhooks()
        .router
        .method_not_allowed_fallback(|| async { Error::NoMethod })
        .layer(Extension(app.bodies.clone()))
        .layer(axum::middleware::map_response(harden))
        .with_state(runners)
}

/// Returns every address that this crate answers, with its method: operations under each of their
/// prefixes, and everything else.
pub fn addresses() -> Vec<(Method, String)> {
    let mut addresses = Vec::new();
    for operation in table::operations() {
        let prefixes = PREFIXES
            .iter()
            .filter(|(base, _)| *base == operation.line.base)
            .flat_map(|(_, them)| *them);
        let under = |prefix: &&str| {
            (operation.line.method.clone(), format!("{prefix}{}", operation.line.path))
        };
        addresses.extend(prefixes.map(under));
    }
    addresses.extend(table::documents().addresses);
    addresses.extend(table::oauth().addresses);
    addresses.extend(table::uploads().addresses);
    addresses.extend(table::webhooks().addresses);
    addresses.extend(registry::ADDRESSES.map(|(method, path)| (method, path.to_owned())));
    addresses.extend(s3::ADDRESSES.map(|(method, path)| (method, path.to_owned())));
    addresses.extend(table::TRIGGERS.map(|path| (Method::POST, path.to_owned())));
    addresses
}
