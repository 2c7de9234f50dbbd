//! OAuth 2.0 over HTTP: the token endpoint and its relatives, and the pages that people see.

use auth::Auth;
use axum::Router;

pub(crate) fn router(_auth: Auth, _public_url: String) -> Router {
    Router::new()
}
