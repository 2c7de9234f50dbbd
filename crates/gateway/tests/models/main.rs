//! Models over real sockets: a real server in front, providers on loopback behind.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a step of a test that fails ends the test"
)]

mod books;
mod breaks;
mod cached;
mod dialects;
mod limits;
mod passes;
mod refusals;
mod routing;
mod stage;
mod standin;
mod watched;
