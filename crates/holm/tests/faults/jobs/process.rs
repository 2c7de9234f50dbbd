//! What the kernel reports about a process of an instance.

use std::fs;

/// Bits of SIGKILL and SIGUSR1 in a signal mask.
const KILL_BIT: u64 = 1 << 8;
const USR1_BIT: u64 = 1 << 9;

pub(crate) struct Process {
    /// True for process 1 of its namespace.
    pub(crate) is_first: bool,
    /// True if it has ended or was killed. It no longer runs, even if the kernel has not removed it
    /// yet.
    pub(crate) is_dying: bool,
    /// True if it has a handler for SIGUSR1.
    pub(crate) heeds_usr1: bool,
}

impl Process {
    /// Reads a process; `None` if it is gone.
    pub(crate) fn read(id: &str) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
        };
        let mask = |name: &str| u64::from_str_radix(field(name), 16).unwrap_or(0);
        let pending = ["SigPnd:", "ShdPnd:"].map(mask);
        Some(Self {
            is_first: field("NSpid:").split_whitespace().last() == Some("1"),
            is_dying: field("State:").starts_with(['Z', 'X'])
                || pending.iter().any(|set| set & KILL_BIT != 0),
            heeds_usr1: mask("SigCgt:") & USR1_BIT != 0,
        })
    }
}
