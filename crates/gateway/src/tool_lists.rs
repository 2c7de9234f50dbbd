//! Remembers what MCP servers answered to `tools/list`, for callers who ask while the server
//! sleeps.
//!
//! ```text
//! asking       reads the bodies of requests that may be this question
//! ListRequest  a request that is nothing but this question, and all that the answer may depend on
//! Listen       copies the answer of a server that is awake, on its way to the caller
//! Lists        the latest answers; the same question gets one while no replica is awake
//! ```
//!
//! A list is kept for its revision and for exactly what was asked: the same caller, the same
//! headers, the same session. So nobody gets what another caller was told, and a new revision
//! answers for itself. In a session the list is forgotten with the next request that is anything
//! else, because a call may change which tools there are, and an answer that is on its way then is
//! not kept. What is kept counts against the workspace; when its share is used up, a workload
//! forgets its own oldest lists.

mod asking;
mod form;
mod listen;
mod lists;
mod message;
mod request;

pub(crate) use asking::read;
pub(crate) use listen::{ListStore, Listen};
pub(crate) use lists::{Lists, Outdated};
pub(crate) use request::ListRequest;

#[cfg(test)]
#[path = "tool_lists_tests.rs"]
mod tests;
