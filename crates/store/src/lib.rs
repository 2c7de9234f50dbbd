//! All durable state of the control plane, on SQLite or PostgreSQL. The only crate that contains
//! SQL.
//!
//! A store function is a plain function that works on a transaction ([`Tx`]). [`Store::write`] and
//! [`Store::read`] run such functions on database threads and return once the result is durable.
//! One SQL text serves both databases; each difference between them is a named function in [`db`].

pub mod backup;
pub mod budgets;
pub mod builds;
pub mod cron;
mod db;
pub mod deliveries;
pub mod edge_names;
pub mod egress_addresses;
mod error;
pub mod executions;
pub mod feed;
pub mod firings;
pub mod idempotency;
pub mod identity;
pub mod image_rights;
pub mod logs;
mod migrations;
pub mod models;
pub mod prices;
pub mod references;
pub mod resources;
pub mod revisions;
pub mod runners;
pub mod seal;
pub mod settings;
mod tidy;
pub mod trigger_addresses;
pub mod usage;
mod value;
pub mod wishes;

pub use db::{
    DatabaseServer, Replication, Settings, Store, Target, Tx, database_servers, replication,
};
pub use error::Error;
pub use seal::{KeyFile, Keyring, Rotation};
pub use tidy::Tidied;
pub use value::{Portion, Row, Value};

/// The values of one statement, in the order of `$1`, `$2`, …
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::Value::from($value)),*] };
}
