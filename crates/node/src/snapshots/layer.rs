//! The writable layer of an instance, as a snapshot reads it.

use super::entry::Ids;
use super::tree::{Copy, open_folder};
use crate::error::SnapshotError;
use crate::extras::Written;
use rustix::fd::AsFd;
use rustix::fs::{CWD, Mode, OFlags, fstatvfs, mkdirat, openat};
use std::io;
use std::path::Path;
use std::time::Duration;

/// What one file takes of a disk at most besides its content.
const BYTES_PER_FILE: u64 = 4_096;

impl Written {
    /// What a copy of it can take of the disk, if it stays as large as it is.
    pub(super) fn bytes_at_most(&self) -> io::Result<u64> {
        let used = fstatvfs(crate::file_system::top(self.mount.as_fd())?)?;
        let content = used.f_blocks.saturating_sub(used.f_bfree).saturating_mul(used.f_frsize);
        let files = used.f_files.saturating_sub(used.f_ffree);
        Ok(content.saturating_add(files.saturating_mul(2 * BYTES_PER_FILE)))
    }

    /// Copies it into a folder that is not there yet, and answers how large the copy is.
    pub(super) fn copy_to(
        &self,
        folder: &Path,
        still: impl FnOnce(
            &mut dyn FnMut() -> Result<(), SnapshotError>,
        ) -> Result<Duration, SnapshotError>,
    ) -> Result<(u64, Duration), SnapshotError> {
        let top = crate::file_system::top(self.mount.as_fd())?;
        let upper = open_folder(&top, Path::new("upper"))?.ok_or(io::ErrorKind::NotFound);
        let upper = upper.map_err(io::Error::from)?;
        mkdirat(CWD, folder, Mode::from_raw_mode(0o700)).map_err(io::Error::from)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let into = openat(CWD, folder, flags, Mode::empty()).map_err(io::Error::from)?;
        let mut copy = Copy::new(&upper, &into, Ids { root: self.root })?;
        copy.look(true)?;
        let paused = still(&mut || copy.look(false))?;
        let size = copy.finish()?;
        Ok((size.bytes, paused))
    }
}
