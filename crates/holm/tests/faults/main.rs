//! What holds when things break: the real program on real databases, killed at random moments, and two of them on one
//! PostgreSQL under concurrent writers.
//!
//! The short form is part of the tests; `HOLM_FAULTS=long` breaks things 200 times, and `HOLM_PROGRAM` names another
//! build of the program, such as the one to be released. Each test prints the seed of its
//! chances when it fails; `HOLM_SEED` repeats them, as far as the timing of processes can be repeated.

mod client;
mod crash;
mod database;
mod history;
mod servers;
mod setup;
mod watcher;
mod writers;
