//! What a new process reports, which it writes into memory that it shares with the node.

pub(super) struct Report {
    pub(super) failed: bool,
    pub(super) step: usize,
    pub(super) errno: i32,
}

impl Report {
    pub(super) fn new() -> Self {
        Self { failed: false, step: 0, errno: 0 }
    }
}
