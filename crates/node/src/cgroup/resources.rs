//! What control groups limit and measure.

use super::files::{MOUNT, read_number};
use admission::Limits;
use std::path::Path;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub memory_bytes: u64,
    pub cpu_us: u64,
    pub processes: u64,
    /// How often the kernel has killed a process of the instance because memory ran out.
    pub oom_kills: u64,
}

/// The limits of the groups above those of instances: the total is the node's, the share is each
/// owner's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) memory_mb: Limits,
    pub(super) swap_mb: Limits,
    pub(super) processes: Limits,
}

/// Returns the limits of the groups that this machine itself is in: it may be a container.
pub(crate) fn limits_of_machine(controller: &str) -> impl Iterator<Item = u64> {
    let older =
        if controller == "memory" { "memory/memory.limit_in_bytes" } else { "pids/pids.max" };
    let files = [older.to_owned(), format!("{controller}.max")];
    // On most machines these files do not exist or hold no number.
    files.into_iter().filter_map(|file| read_number(&Path::new(MOUNT).join(file)).ok())
}
