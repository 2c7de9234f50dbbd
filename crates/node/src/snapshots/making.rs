//! A snapshot that is being made.

use super::about::Sort;
use super::kept::Kept;
use super::paths::DISK;
use super::{SnapshotName, Snapshots, place};
use crate::error::SnapshotError;
use crate::pool;
use crate::volumes::{CloneSource, allocated_bytes, make_folder};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A snapshot that is being made. Dropping it removes whatever is not finished.
pub(super) struct Making<'s> {
    pub(super) snapshots: &'s Snapshots,
    pub(super) name: SnapshotName,
    pub(super) folder: PathBuf,
    /// The folder of the clone, if it becomes one.
    pub(super) files: PathBuf,
}

impl Making<'_> {
    /// Clones the disk, and returns the size of the clone.
    pub(super) fn clone_disk(
        &self,
        disk: &CloneSource,
        still: impl FnOnce(
            &mut dyn FnMut() -> Result<(), SnapshotError>,
        ) -> Result<Duration, SnapshotError>,
    ) -> Result<(u64, Duration), SnapshotError> {
        make_folder(&self.files)?;
        let image = pool::nameless(&self.files)?;
        // Most of it is written out while the instance still runs.
        disk.sync()?;
        let paused = still(&mut || {
            disk.sync()?;
            Ok(disk.clone_into(&image)?)
        })?;
        rustix::fs::fsync(&image).map_err(io::Error::from)?;
        pool::name(&image, &self.files.join(DISK))?;
        Ok((allocated_bytes(&image)?, paused))
    }

    /// Gives the snapshot its name. Everything is on disk before and after that.
    pub(super) fn finish(&self, path: &Path, kept: Kept) -> io::Result<()> {
        let folder = std::fs::File::open(&self.folder)?;
        match kept.sort {
            // There are only the notes about it, which are on disk already.
            Sort::Image => folder.sync_all()?,
            Sort::Layer => rustix::fs::syncfs(folder)?,
        }
        files::rename(&self.folder, path)?;
        self.snapshots.all.lock().kept.insert(self.name.clone(), kept);
        Ok(())
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if self.folder.exists()
            && let Err(error) =
                place::remove(&self.files).and_then(|()| place::remove(&self.folder))
        {
            tracing::error!(%error, path = %self.folder.display(), "what was copied of a snapshot stays until the next start");
        }
        self.snapshots.all.lock().making.remove(&self.name);
        self.snapshots.made.notify_all();
    }
}
