//! The data plane over real sockets: a real server in front, real workloads behind a machine that
//! pauses them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a step of a test that fails ends the test"
)]

mod answered;
mod deployments;
mod errors;
mod forward;
mod hold;
mod lasting;
mod machine;
mod origins;
mod previews;
mod replicas;
mod sandboxes;
mod sessions;
mod sockets;
mod stage;
mod tool_lists;
mod triggers;
mod workload;
