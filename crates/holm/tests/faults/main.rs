//! What holds when things break: the real program on real databases, killed at random moments, and
//! two of them on one PostgreSQL under concurrent writers.
//!
//! The short form is part of the tests; `HOLM_FAULTS=long` breaks things 200 times, and
//! `HOLM_PROGRAM` names another build of the program, such as the one to be released. Each test
//! prints the seed of its chances when it fails; `HOLM_SEED` repeats them, as far as the timing of
//! processes can be repeated.

#[cfg(test)]
mod client;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod database;
#[cfg(test)]
mod history;
#[cfg(test)]
mod jobs;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod watcher;
#[cfg(test)]
mod writers;
