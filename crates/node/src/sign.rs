//! The node's last sign of life, from which the next node knows until when instances were watched.
//!
//! Nobody knows the exact time at which an instance ended while no node was running. It is reported
//! as the time of the last sign, when it was certainly still alive.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread, pwrite};
use std::path::Path;

/// Digits, a space, and the machine's boot id.
const BYTES_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Sign(OwnedFd);

impl Sign {
    pub(crate) fn open(folder: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        open(folder.join("alive"), flags, Mode::from_raw_mode(0o600)).map(Self)
    }

    /// Writes a sign of life over the last one, in one write of the same length, so that a kill
    /// leaves either the old one or the new one.
    pub(crate) fn give(&self, boot: &str, uptime_ms: i64) -> Result<(), Errno> {
        let text = format!("{uptime_ms:020} {boot}\n");
        pwrite(&self.0, text.as_bytes(), 0).map(drop)
    }

    /// Returns when the last one was given, in milliseconds since the machine started. `None` if
    /// that was before the machine's last start.
    pub(crate) fn last(&self, boot: &str) -> Option<i64> {
        let mut bytes = [0; BYTES_MAX];
        let length = pread(&self.0, &mut bytes, 0).ok()?;
        let (uptime_ms, of) =
            std::str::from_utf8(bytes.get(..length)?).ok()?.trim().split_once(' ')?;
        (of == boot).then(|| uptime_ms.parse().ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sign_is_of_this_start_of_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let sign = Sign::open(folder.path()).unwrap();
        assert_eq!(sign.last("a"), None);
        sign.give("a", 12_345).unwrap();
        sign.give("a", 9).unwrap();
        assert_eq!(Sign::open(folder.path()).unwrap().last("a"), Some(9));
        assert_eq!(sign.last("b"), None);
    }
}
