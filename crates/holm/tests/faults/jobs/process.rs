//! What the kernel tells of a process of an instance.

use std::fs;

/// The bit of SIGKILL in a set of signals.
const KILL_BIT: u64 = 1 << 8;

pub(crate) struct Process {
    /// Of its namespace.
    pub(crate) is_first: bool,
    /// It has ended or was killed, and does not run any more, whenever the kernel gets round to
    /// removing it.
    pub(crate) is_dying: bool,
}

impl Process {
    /// `None` when it is gone.
    pub(crate) fn read(id: &str) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
        };
        let pending =
            ["SigPnd:", "ShdPnd:"].map(|name| u64::from_str_radix(field(name), 16).unwrap_or(0));
        Some(Self {
            is_first: field("NSpid:").split_whitespace().last() == Some("1"),
            is_dying: field("State:").starts_with(['Z', 'X'])
                || pending.iter().any(|set| set & KILL_BIT != 0),
        })
    }
}
