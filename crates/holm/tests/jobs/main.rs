//! Jobs with the real program, on this machine: their tasks, their output, and what holds when the
//! server is killed.
//!
//! `HOLM_FAULTS=long` kills more often; `HOLM_PROGRAM` names a different build of the program.

#![cfg(test)]

mod command_line;
mod ends;
mod killed;
mod life;
#[expect(dead_code, reason = "the place is that of the tests of sandboxes, which use more of it")]
#[path = "../sandboxes/setup.rs"]
mod place;
mod setup;
