//! Speaks HTTP/1.1 to workloads.
//!
//! ```text
//! connect       a new connection to a port of an instance
//! connection    one request and the head of its answer at a time, then the body
//! http1         the same without limits of time, also for connections to model providers
//! request_body  what is sent, with a limit
//! reusable      which connections can carry another request
//! silence       notices a workload that neither takes nor sends anything
//! spares        connections that wait for the next request
//! wakes         keeps a connection from waking the task that drives it
//! ```

mod connect;
mod connection;
mod http1;
mod request_body;
mod reusable;
mod silence;
mod spares;
mod wakes;

pub use connect::Unanswered;
pub(crate) use connect::connect;
pub(crate) use connection::{NoAnswer, ReadError, Wire};
pub(crate) use http1::Http1;
pub(crate) use request_body::{BodyFaults, BodyRules, BoxError, RequestBody};
pub(crate) use reusable::Reusable;
pub(crate) use silence::LastSent;
pub(crate) use spares::{Queue, Spares};
