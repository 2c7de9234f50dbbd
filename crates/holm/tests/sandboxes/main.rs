//! Sandboxes of the real program, on this machine: their life, and what holds when the server is killed.
//!
//! `HOLM_FAULTS=long` kills a hundred times; `HOLM_PROGRAM` names another build of the program.

#![cfg(test)]
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed step is a failed test")]

mod acme;
mod dns;
mod domains;
mod killed;
mod life;
mod setup;
