//! The guest as its callers see it: the real binary, over the network.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod contract;
mod cuts;
mod first;
mod inputs;
mod network;
mod plain;
mod processes;
mod readers;
mod robust;
mod server;
mod terminals;
mod tools;
mod upgrades;
mod waits;
mod work;
