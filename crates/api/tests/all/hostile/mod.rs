//! Two hostile tenants and an honest one, at every address that this crate serves: they get no
//! byte, have no effect, and see no difference in any answer that reveals whether somebody else's
//! object exists.
//!
//! Operations come from the published document and everything else from [`api::addresses`], so a
//! new route is tried here without being named, or makes [`plain::every_address_is_tried`] fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod names;
mod operations;
mod plain;
mod stage;
mod storage;
