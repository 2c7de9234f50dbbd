//! Takes snapshots.

use super::about::{About, Sort};
use super::layer::Source;
use super::paths::{DISK, LAYER, MAKING};
use super::place::{self, Place};
use super::states::{SnapshotState, megabytes};
use super::{NewSnapshot, Snapshots, Taken};
use crate::error::SnapshotError;
use crate::names::SnapshotName;
use crate::pool;
use crate::volumes::{CloneSource, allocated_bytes, make_folder};
use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A snapshot that is being made. Dropping it removes whatever is not finished.
struct Making<'s> {
    snapshots: &'s Snapshots,
    name: SnapshotName,
    folder: PathBuf,
    /// The folder of the clone, if it becomes one.
    files: PathBuf,
}

impl Snapshots {
    /// Takes a snapshot of what an instance wrote. `still` freezes the instance while the function
    /// that it is given runs.
    pub(crate) fn take(
        self: &Arc<Self>,
        new: &NewSnapshot,
        written: &Source,
        parent: Option<&SnapshotName>,
        still: impl FnOnce(
            &mut dyn FnMut() -> Result<(), SnapshotError>,
        ) -> Result<Duration, SnapshotError>,
    ) -> Result<Taken, SnapshotError> {
        let Some(making) = self.begin(new)? else {
            let size_bytes = self.all.lock().kept.get(&new.name).map_or(0, |kept| kept.size_bytes);
            return Ok(Taken { size_bytes, paused: Duration::ZERO });
        };
        // The parent may be removed meanwhile, and the instance may end.
        let missing = |name: &SnapshotName| SnapshotError::Missing(name.clone());
        let hold = |name| self.hold_again(name).ok_or_else(|| missing(name));
        let _under = parent.map(hold).transpose()?;
        let (sort, size_bytes, paused) = match written {
            Source::Disk(disk) => {
                let _room = self.room.take(&new.owner, megabytes(disk.allocated_bytes()?))?;
                let (size_bytes, paused) = making.clone_disk(disk, still)?;
                (Sort::Image, size_bytes, paused)
            }
            Source::Files(files) => {
                let _room =
                    self.room.take(&new.owner, megabytes(files.bytes_at_most(&making.folder)?))?;
                let (size_bytes, paused) = files.copy_to(&making.folder.join(LAYER), still)?;
                (Sort::Layer, size_bytes, paused)
            }
        };
        About { sort, parent: parent.cloned(), size_bytes, base: new.base.clone() }
            .write(&making.folder)?;
        let room = self.room.take(&new.owner, megabytes(size_bytes))?;
        let kept = SnapshotState {
            owner: new.owner.clone(),
            sort,
            parent: parent.cloned(),
            base: new.base.clone(),
            size_bytes,
            is_removed: false,
            users: 0,
            disks: HashSet::new(),
            place: Place::Here,
            was_used: true,
            used_at_s: None,
            failed_to_leave: false,
            _room: room,
        };
        making.finish(&self.path(&new.owner, &new.name), kept)?;
        Ok(Taken { size_bytes, paused })
    }

    /// Starts making a snapshot. `None` if it exists already.
    fn begin(&self, new: &NewSnapshot) -> Result<Option<Making<'_>>, SnapshotError> {
        let mut all = self.all.lock();
        while all.making.contains(&new.name) {
            self.made.wait(&mut all);
        }
        if let Some(kept) = all.kept.get(&new.name) {
            let missing = || SnapshotError::Missing(new.name.clone());
            return if kept.is_removed { Err(missing()) } else { Ok(None) };
        }
        all.making.insert(new.name.clone());
        drop(all);
        let above = self.folder.join(new.owner.as_str());
        let folder = above.join(format!("{MAKING}{}", new.name));
        let files = self.files(&new.owner, &new.name, Sort::Image);
        let making = Making { snapshots: self, name: new.name.clone(), folder, files };
        if !above.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(&above)?;
            files::sync_folder_of(&above)?;
        }
        DirBuilder::new().mode(0o700).create(&making.folder)?;
        Ok(Some(making))
    }
}

impl Making<'_> {
    /// Clones the disk, and returns the size of the clone.
    fn clone_disk(
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
    fn finish(&self, path: &Path, kept: SnapshotState) -> io::Result<()> {
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
