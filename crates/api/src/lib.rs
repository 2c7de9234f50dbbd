//! The management API: thin routes over the control plane.
//!
//! [`table`] lists every operation in one line each: method, path, name, scopes and handler. The
//! OpenAPI document and the checks of requests follow from the types of the handler.
//! [`http`](crate::http) turns requests into calls and decisions into statuses; each module under
//! [`routes`] has the handlers of one noun.

mod app;
mod http;
mod mcp;
mod oauth;
mod openapi;
mod routes;
mod table;

pub use crate::http::error::Error;
pub use crate::http::long_request::LongRequest;
pub use crate::http::malformed::{LogsRule, Malformed, MetricsRule, ModelUsageRule};
pub use crate::http::serve::{addresses, router, webhooks};
pub use app::App;
pub use openapi::{EDGE_ERRORS, document};
