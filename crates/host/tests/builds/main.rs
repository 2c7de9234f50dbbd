//! Builds Dockerfiles: compared with `buildah`, and cases that only builds here have to handle.
//! Needs root, `buildah` and `tools/guest`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod bad_input;
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod content;
mod corpus;
mod place;
mod tree;
