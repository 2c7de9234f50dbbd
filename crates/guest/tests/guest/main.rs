//! The guest as its callers see it: the real binary, over the wire.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

#[path = "../common/mod.rs"]
mod common;
mod network;
mod processes;
mod server;
