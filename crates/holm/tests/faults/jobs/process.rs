//! What the kernel reports about a process of an instance.

use std::fs;

/// Bit of SIGKILL in a signal mask.
const KILL_BIT: u64 = 1 << 8;

pub(crate) struct Process {
    /// True for process 1 of its namespace.
    pub(crate) is_first: bool,
    /// True if it has ended or was killed. It no longer runs, even if the kernel has not removed it
    /// yet.
    pub(crate) is_dying: bool,
}

impl Process {
    /// Reads a process; `None` if it is gone.
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
