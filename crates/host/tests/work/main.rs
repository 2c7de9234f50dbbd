//! Work on this machine, from launch to result, in real containers. Needs root and `tools/guest`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

mod bases;
#[path = "../common/mod.rs"]
mod common;
mod disks;
mod ends;
mod output;
mod place;
mod snapshots;
mod speed;
