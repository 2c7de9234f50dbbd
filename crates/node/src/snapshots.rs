//! Snapshots: what instances had written over their layers at one moment, for others to start from.
//!
//! ```text
//! snapshots/OWNER/NAME/about   what it is: written last; without it the snapshot is half made
//!                      layer/  the files, with the owners that the instance sees
//!                      disks/  names of disks that stay and lie over it
//!                      removed kept only because something still needs it
//!                      remote  its files are in a remote store, and not here
//! images/OWNER/NAME/disk       in the pool, instead of `layer`: a clone of the instance's disk
//! ```
//!
//! A snapshot of an instance that started from a snapshot lies over that one. Each is only as large
//! as what was written since; the kernel shows the whole chain as one tree. A snapshot keeps its
//! files as long as something stands on it: an instance, a disk that stays or another snapshot.
//!
//! A disk that starts from a snapshot of a disk (an image) is a clone of it, and lies over whatever
//! the original disk lay over. So it needs that, but not the snapshot itself, and chains do not
//! grow.

mod about;
mod entry;
mod folder;
mod found;
mod hold;
mod identity;
mod image;
mod layer;
mod making;
mod offload;
mod pack;
mod paths;
mod place;
mod states;
mod tree;

use crate::error::SnapshotError;
use crate::names::{Owner, SnapshotName};
use crate::remote_store::RemoteStore;
use crate::volumes::Volumes;
use about::{About, Sort};
use admission::Pool;
use found::Found;
pub(crate) use found::allocated_mb;
pub(crate) use hold::Hold;
pub(crate) use identity::Identity;
pub(crate) use image::Layer;
pub(crate) use layer::{Files, Source};
pub use offload::Here;
use parking_lot::{Condvar, Mutex};
use paths::{DISK, EMPTY, GONE, IMAGES};
pub(crate) use states::CHAIN_MAX;
use states::{All, SnapshotState};
use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use types::instance::{InstanceName, VolumeName};

/// What to take a snapshot of.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub name: SnapshotName,
    pub owner: Owner,
    pub instance: InstanceName,
    /// The caller's name for the instance's image layers, which [`Snapshots::base`] returns later.
    pub base: Option<String>,
}

/// A snapshot that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub name: SnapshotName,
    pub owner: Owner,
    /// The disk space it takes, without the snapshots that it lies over.
    pub size_bytes: u64,
}

/// The result of taking a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub size_bytes: u64,
    /// How long the instance was frozen.
    pub paused: Duration,
}

#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
    room: Pool<Owner>,
    volumes: Arc<Volumes>,
    all: Mutex<All>,
    /// Signalled when a snapshot has been made, or failed to be.
    made: Condvar,
    /// Signalled when a snapshot has moved to or from the remote store, or failed to.
    moved: Condvar,
    remote: OnceLock<Arc<dyn RemoteStore>>,
    /// What earlier nodes left half made.
    leftovers: Mutex<Vec<PathBuf>>,
}

impl Snapshots {
    /// Finds the snapshots that earlier nodes made in this folder. Their room is part of what volumes
    /// may take. [`Snapshots::clear_leftovers`] removes half-made ones.
    pub(crate) fn open(folder: &Path, volumes: &Arc<Volumes>) -> io::Result<Arc<Self>> {
        let (room, volumes) = (volumes.room(), Arc::clone(volumes));
        let folder = folder.join("snapshots");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let Found { kept, aside, leftovers } =
            found::find(&folder, &volumes.pool().root().join(IMAGES), &room)?;
        let all = Mutex::new(All { kept, aside, making: HashSet::new() });
        let (made, moved) = (Condvar::new(), Condvar::new());
        let remote = OnceLock::new();
        let leftovers = Mutex::new(leftovers);
        Ok(Arc::new(Self { folder, room, volumes, all, made, moved, remote, leftovers }))
    }

    /// Removes what earlier nodes left half made, on a separate thread: instances decide how many
    /// files that are, and nothing waits for them.
    pub(crate) fn clear_leftovers(&self) {
        let leftovers = std::mem::take(&mut *self.leftovers.lock());
        if leftovers.is_empty() {
            return;
        }
        let remove = move || {
            for path in leftovers {
                if let Err(error) = place::remove(&path) {
                    tracing::error!(%error, path = %path.display(), "what is not whole of a snapshot stays until the next start");
                }
            }
        };
        let thread = std::thread::Builder::new().name("leftovers".to_owned());
        if let Err(error) = thread.spawn(remove) {
            tracing::error!(%error, "what is not whole of snapshots stays until the next start");
        }
    }

    /// Returns those that are not removed.
    pub fn list(&self) -> Vec<Snapshot> {
        let all = self.all.lock();
        let there = all.kept.iter().filter(|(_, kept)| !kept.is_removed);
        let one = |(name, kept): (&SnapshotName, &SnapshotState)| Snapshot {
            name: name.clone(),
            owner: kept.owner.clone(),
            size_bytes: kept.size_bytes,
        };
        there.map(one).collect()
    }

    /// Returns true if there is such a snapshot, here or in the remote store, that is not removed.
    pub fn has(&self, name: &SnapshotName) -> bool {
        self.all.lock().kept.get(name).is_some_and(|kept| !kept.is_removed)
    }

    /// Returns the result of an earlier snapshot of this name.
    pub(crate) fn taken(&self, name: &SnapshotName) -> Option<Taken> {
        let all = self.all.lock();
        let kept = all.kept.get(name).filter(|kept| !kept.is_removed)?;
        Some(Taken { size_bytes: kept.size_bytes, paused: Duration::ZERO })
    }

    /// Returns the caller's name for the layers below a snapshot. `None` if none was given, or the
    /// snapshot is gone.
    pub fn base(&self, name: &SnapshotName) -> Option<String> {
        self.all.lock().kept.get(name)?.base.clone()
    }

    /// Returns the same for all that have files, including removed ones that something stands on.
    pub fn bases(&self) -> HashSet<String> {
        self.all.lock().kept.values().filter_map(|kept| kept.base.clone()).collect()
    }

    /// Removes a snapshot for good. Its files stay until nothing stands on it.
    pub fn remove(self: &Arc<Self>, name: &SnapshotName) -> io::Result<()> {
        let mut all = self.all.lock();
        if let Some(owner) = all.aside.remove(name) {
            drop(all);
            place::remove(&self.files(&owner, name, Sort::Image))?;
            place::remove(&self.path(&owner, name))?;
            self.collect();
            return Ok(());
        }
        let Some(kept) = all.kept.get_mut(name) else { return Ok(()) };
        if !kept.is_removed {
            About::mark_removed(&self.path(&kept.owner, name))?;
            kept.is_removed = true;
        }
        drop(all);
        self.collect();
        Ok(())
    }

    /// Keeps a snapshot for something that starts from it.
    pub(crate) fn hold(self: &Arc<Self>, name: &SnapshotName) -> Result<Hold, SnapshotError> {
        let mut all = self.all.lock();
        let is_here = all.is_here(name);
        let kept = all.kept.get_mut(name).filter(|kept| !kept.is_removed);
        let kept = kept.ok_or_else(|| SnapshotError::Missing(name.clone()))?;
        if !is_here {
            return Err(SnapshotError::Away(name.clone()));
        }
        kept.users += 1;
        Ok(Hold { snapshots: Arc::clone(self), name: name.clone() })
    }

    /// Keeps a snapshot for a disk that lies over it. The snapshot may have been removed meanwhile.
    pub(crate) fn hold_under(
        self: &Arc<Self>,
        name: &SnapshotName,
        disk: &VolumeName,
    ) -> Result<Hold, SnapshotError> {
        let missing = || SnapshotError::Missing(name.clone());
        if !self.all.lock().kept.get(name).is_some_and(|kept| kept.disks.contains(disk)) {
            let hold = self.hold(name)?;
            hold.add_disk(disk)?;
            return Ok(hold);
        }
        self.hold_again(name).ok_or_else(missing)
    }

    /// Keeps a snapshot for something that stood on it before, even if it was removed since.
    pub(crate) fn hold_again(self: &Arc<Self>, name: &SnapshotName) -> Option<Hold> {
        self.all.lock().kept.get_mut(name)?.users += 1;
        Some(Hold { snapshots: Arc::clone(self), name: name.clone() })
    }

    /// Makes an empty folder, if needed, and returns its path.
    pub(crate) fn empty(&self) -> io::Result<PathBuf> {
        let folder = self.folder.join(EMPTY);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(folder)
    }

    fn path(&self, owner: &Owner, name: &SnapshotName) -> PathBuf {
        self.folder.join(owner.as_str()).join(name.as_str())
    }

    /// Returns the folder of a snapshot's files, which may be another one than the folder with its
    /// notes.
    fn files(&self, owner: &Owner, name: &SnapshotName, sort: Sort) -> PathBuf {
        let images = self.volumes.pool().root().join(IMAGES);
        paths::files(&self.path(owner, name), &images, owner, sort)
    }

    fn image(&self, owner: &Owner, name: &SnapshotName) -> PathBuf {
        self.files(owner, name, Sort::Image).join(DISK)
    }

    /// Removes the removed snapshots that nothing stands on any more. Their files are removed on a
    /// separate thread, because there may be many.
    pub(crate) fn collect(self: &Arc<Self>) {
        let mut going = Vec::new();
        let mut all = self.all.lock();
        while let Some(name) = all.unneeded(&self.volumes) {
            let Some(kept) = all.kept.remove(&name) else { break };
            let path = self.path(&kept.owner, &name);
            let gone = path.with_file_name(format!("{GONE}{name}"));
            // Without this name the snapshot is not found any more, whatever happens to its files.
            if let Err(error) = files::rename(&path, &gone) {
                tracing::error!(%error, snapshot = %name, "a removed snapshot cannot be moved away");
            }
            going.push((name, gone, kept));
        }
        drop(all);
        if going.is_empty() {
            return;
        }
        let snapshots = Arc::clone(self);
        let remove = move || {
            // The room goes with them, so it is free once the files are gone.
            for (name, path, kept) in going {
                if !kept.place.is_here() {
                    snapshots.forget_remote(&kept.owner, &name);
                }
                let files = snapshots.files(&kept.owner, &name, kept.sort);
                if let Err(error) = place::remove(&files).and_then(|()| place::remove(&path)) {
                    tracing::error!(%error, path = %path.display(), "the files of a snapshot stay until the next start");
                }
            }
        };
        let thread = std::thread::Builder::new().name("snapshots".to_owned());
        if let Err(error) = thread.spawn(remove) {
            tracing::error!(%error, "the files of removed snapshots stay until the next start");
        }
    }

    /// Removes what the store has of a snapshot that is gone.
    fn forget_remote(&self, owner: &Owner, name: &SnapshotName) {
        if let Some(remote) = self.remote.get()
            && let Err(error) = remote.remove(owner, name.as_str())
        {
            tracing::warn!(%error, "a copy of a removed snapshot stays for now");
        }
    }
}
