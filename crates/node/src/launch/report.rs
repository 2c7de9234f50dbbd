//! What a new process reports, which it writes into memory that it shares with the node.

pub(super) const SAID_BYTES: usize = 160;

pub(super) struct Report {
    pub(super) failed: bool,
    pub(super) step: usize,
    pub(super) errno: i32,
    /// The kernel's message, if any, up to the first zero.
    pub(super) said: [u8; SAID_BYTES],
}

impl Report {
    pub(super) fn new() -> Self {
        Self { failed: false, step: 0, errno: 0, said: [0; SAID_BYTES] }
    }

    /// Returns the kernel's message in brackets, or nothing.
    pub(super) fn said(&self) -> String {
        let text = self.said.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text).trim_end().to_owned();
        if text.is_empty() { text } else { format!(" ({text})") }
    }
}
