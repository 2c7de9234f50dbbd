//! Guarantees when things break: the real program on real databases, killed at random moments, and
//! two servers on one PostgreSQL under concurrent writers.
//!
//! The short form is part of the tests; `HOLM_FAULTS=long` breaks things 200 times, and
//! `HOLM_PROGRAM` names a different build of the program, such as a release. A failing test prints
//! its random seed; `HOLM_SEED` repeats it, as far as the timing of processes can be repeated.

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
