//! The management API: thin routes over the store, and the reconcilers behind them.
//!
//! [`table`] lists every operation, one line each: method, path, name, scopes and the handler, from
//! whose types the OpenAPI document and the checks of what callers send follow. [`engine`] does for
//! every kind of resource what all kinds have in common; a module under [`routes`] holds what only
//! one noun does.

mod addresses;
mod app;
pub mod bill;
mod call;
mod catalogue;
mod cursor;
pub mod domains;
mod drive_key;
mod engine;
mod error;
mod executions;
pub mod fleet;
mod furnish;
mod headers;
mod limits;
mod listed;
mod mcp;
mod missing;
mod oauth;
mod once;
mod openapi;
mod operation;
mod patience;
mod providers;
mod query;
mod reply;
mod routes;
mod secret;
mod serve;
mod settings;
mod streams;
mod table;
mod usage;
mod webhooks;

pub use app::{App, Parts};
pub use catalogue::Catalogue;
pub use error::Error;
pub use missing::Missing;
pub use openapi::document;
pub use patience::Patience;
pub use serve::{addresses, router};
pub use settings::{Bill, Rate, Settings};
pub use streams::StreamLimits;
pub use webhooks::webhooks;
