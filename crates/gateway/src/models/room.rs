//! Room for what is held back of requests and answers.

/// Memory for buffered bytes, taken from a workspace's share (by the workspace's name).
pub(crate) type Room = admission::Room<String>;
