//! How much output is kept. It lies on the disk of the sandbox, where the workload cannot remove
//! it, so on a small disk it is less.

use super::RUNNING_MAX;
use super::log::Keep;
use crate::settings::Settings;
use std::path::Path;

/// Limit for the output of all processes together. Beyond it, the oldest ended processes lose
/// theirs first, then the others their older output, and at last all but their tails.
const LOGS_BYTES_MAX: u64 = 256 << 20;
/// The part of the disk that output may take.
const DISK_PARTS: u64 = 8;
/// Output may take this much of any disk, so that what just happened can always be read.
const LOGS_BYTES_MIN: u64 = 256 << 10;
/// The same if output must stay in memory, a sixteenth of the smallest sandbox's.
const MEMORY_BYTES_MAX: u64 = 8 << 20;
/// Limit for one generation of a log. With two of them, the last 32 to 64 MiB of output are kept.
const GENERATION_BYTES_MAX: u64 = 32 << 20;
/// How much output of all processes together may arrive before the limit is enforced again.
const RECLAIM_BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// For the output of all processes together.
    pub(super) all: u64,
    /// How much of it may arrive before the limit is enforced again.
    pub(super) reclaim: u64,
    /// What each running process may keep while all of them have output.
    pub(super) tail: u64,
}

impl Limits {
    fn within(all: u64) -> Self {
        Self { all, reclaim: RECLAIM_BYTES_MAX.min(all / 4), tail: all / RUNNING_MAX as u64 }
    }

    /// Returns the size of a generation, two of which every log may have.
    fn generation(self) -> usize {
        usize::try_from(GENERATION_BYTES_MAX.min(self.all / 2)).unwrap_or(usize::MAX)
    }
}

/// Decides where output is kept, and how much of it.
pub(super) fn by(settings: &Settings) -> (Keep, Limits) {
    if settings.process_logging_disabled {
        return (Keep::Memory, Limits::within(MEMORY_BYTES_MAX));
    }
    let directory = std::env::temp_dir();
    let limits = Limits::within(share(disk_bytes(&directory)));
    (Keep::Files { directory, generation_bytes: limits.generation() }, limits)
}

/// Returns the size of the file system that has a directory, if it says one.
fn disk_bytes(directory: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(directory).ok()?;
    disk.f_blocks.checked_mul(disk.f_frsize).filter(|bytes| *bytes > 0)
}

fn share(disk_bytes: Option<u64>) -> u64 {
    disk_bytes
        .map_or(LOGS_BYTES_MAX, |bytes| (bytes / DISK_PARTS).clamp(LOGS_BYTES_MIN, LOGS_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_keeps_little_output() {
        let (mib, gib) = (1 << 20, 1 << 30);
        for (disk, all, generation) in [
            (None, 256 * mib, 32 * mib),
            (Some(100 * gib), 256 * mib, 32 * mib),
            (Some(gib), 128 * mib, 32 * mib),
            (Some(256 * mib), 32 * mib, 16 * mib),
            (Some(1), LOGS_BYTES_MIN, LOGS_BYTES_MIN / 2),
        ] {
            let limits = Limits::within(share(disk));
            assert_eq!((limits.all, limits.generation() as u64), (all, generation), "{disk:?}");
            assert!(limits.reclaim > 0 && limits.reclaim <= limits.all / 4);
            assert!(limits.tail * RUNNING_MAX as u64 <= limits.all);
        }
        assert_eq!(Limits::within(share(None)).tail, 64 << 10);
    }

    #[test]
    fn every_disk_says_its_size() {
        assert!(disk_bytes(&std::env::temp_dir()).is_some());
        assert_eq!(disk_bytes(Path::new("/nonexistent")), None);
        // A file system without blocks has no size.
        assert_eq!(disk_bytes(Path::new("/proc")), None);
    }
}
