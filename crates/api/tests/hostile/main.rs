//! Two hostile tenants and an honest one, over every address that this crate serves: no byte, no
//! effect, and no difference in an answer that tells whether a thing of somebody else's is there.
//!
//! Operations come from the published document and everything else from [`api::addresses`], so a
//! route that is added is tried here without being named, or fails
//! [`plain::every_address_is_tried`].

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

#[path = "../common/mod.rs"]
mod common;
mod operations;
mod plain;
mod stage;
mod storage;
