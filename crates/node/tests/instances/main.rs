//! Real containers on this machine. Each test has its own network and its own name for control
//! groups, and fails if it leaves a group behind.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

mod adoption;
mod clones;
mod drives;
mod firewall;
mod full_disk;
mod killed;
mod leaks;
mod life;
mod limits;
#[path = "../machine/mod.rs"]
mod machine;
mod network;
mod owners;
mod scratch;
mod snapshots;
mod speed;
mod tunnels;
mod volumes;
