//! Requests and answers: how a request becomes a call of a handler, and a decision becomes a
//! status.

pub(crate) mod bodies;
pub(crate) mod call;
pub(crate) mod error;
pub(crate) mod harden;
pub(crate) mod headers;
pub(crate) mod idempotency;
pub(crate) mod json_body;
pub(crate) mod limits;
pub(crate) mod listed;
pub(crate) mod lists;
pub(crate) mod long_request;
pub(crate) mod malformed;
pub(crate) mod operation;
pub(crate) mod operation_router;
pub(crate) mod pages;
pub(crate) mod query;
pub(crate) mod reply;
mod sent;
pub(crate) mod serve;
pub(crate) mod streams;
