//! What instances had written over their layers at one moment, as layers for others.
//!
//! ```text
//! snapshots/OWNER/NAME/about   what it is: written last, so that one without it is half made
//!                      layer/  the files, with the owners that the instance sees
//!                      disks/  names of disks that stay and lie over it
//!                      removed it is kept only for those that stand on it
//! ```
//!
//! A snapshot of an instance that began with a snapshot lies over that one. Each is only as large
//! as what was written since; the kernel shows the whole chain as one tree. What stands on one, an
//! instance, a disk that stays or another snapshot, keeps its files.

mod about;
mod entry;
mod folder;
mod identity;
mod layer;
mod tree;

use crate::error::SnapshotError;
use crate::spec::{Owner, SpecError};
use crate::volumes::Volumes;
use about::About;
use admission::{Permit, Pool};
pub(crate) use identity::Identity;
pub(crate) use layer::Source;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use types::instance::{InstanceName, VolumeName};

/// Looking a file up costs more with each layer that does not have it, and the kernel takes 500 for
/// image and chain together.
const CHAIN_MAX: usize = 100;
/// What is not whole, and what is on its way out, is called so. No name begins with a dot.
const MAKING: &str = ".making-";
const GONE: &str = ".gone-";
const LAYER: &str = "layer";
/// Beside the folders of owners, none of whom is called so.
const EMPTY: &str = ".empty";
const MIB: u64 = 1 << 20;

/// 1 to 63 lower-case letters, digits, hyphens and underscores. It names a folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(Owner);

impl SnapshotName {
    pub fn new(text: impl Into<String>) -> Result<Self, SpecError> {
        let text = text.into();
        match Owner::new(text) {
            Ok(name) => Ok(Self(name)),
            Err(SpecError::Owner(text)) => Err(SpecError::Snapshot(text)),
            Err(error) => Err(error),
        }
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl std::fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = SpecError;

    fn try_from(text: String) -> Result<Self, SpecError> {
        Self::new(text)
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.as_str().to_owned()
    }
}

/// What to take.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    pub name: SnapshotName,
    pub owner: Owner,
    pub instance: InstanceName,
    /// What the layers of the instance are called by whoever asks: [`Snapshots::base`] says it again.
    pub base: Option<String>,
}

/// One that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub name: SnapshotName,
    pub owner: Owner,
    /// What it takes of the disk, without those that it lies over.
    pub size_bytes: u64,
}

/// One that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub size_bytes: u64,
    /// How long the instance stood still.
    pub paused: Duration,
}

#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
    room: Pool<Owner>,
    volumes: Arc<Volumes>,
    all: Mutex<All>,
    /// One that was being made is there, or is not.
    made: Condvar,
}

#[derive(Debug, Default)]
struct All {
    kept: HashMap<SnapshotName, Kept>,
    making: HashSet<SnapshotName>,
}

#[derive(Debug)]
struct Kept {
    owner: Owner,
    parent: Option<SnapshotName>,
    base: Option<String>,
    size_bytes: u64,
    is_removed: bool,
    /// Instances that stand on it, and snapshots that are being made over it.
    users: usize,
    /// That stay, and were begun over it.
    disks: HashSet<VolumeName>,
    /// Gone with its files.
    _room: Permit<Owner>,
}

/// Keeps a snapshot, and those that it lies over, for whoever stands on it.
#[derive(Debug)]
pub(crate) struct Hold {
    snapshots: Arc<Snapshots>,
    pub(crate) name: SnapshotName,
}

/// One that is being made. What it got to is removed with this value.
struct Making<'s> {
    snapshots: &'s Snapshots,
    name: SnapshotName,
    folder: PathBuf,
}

impl Snapshots {
    /// Finds those that earlier nodes made in this folder, and removes what is half made. They take
    /// their room of what volumes have.
    pub(crate) fn open(folder: &Path, volumes: &Arc<Volumes>) -> io::Result<Arc<Self>> {
        let (room, volumes) = (volumes.room(), Arc::clone(volumes));
        let folder = folder.join("snapshots");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let mut kept = HashMap::new();
        for (owner, path) in folders(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).map(SnapshotName::new);
            let about = About::read(&path);
            let (Some(Ok(name)), Some(About { parent, size_bytes, base })) = (name, about?) else {
                tracing::info!(path = %path.display(), "a snapshot that is not whole is removed");
                std::fs::remove_dir_all(&path)?;
                continue;
            };
            let is_removed = About::is_removed(&path);
            let _room = room.adopt(&owner, megabytes(size_bytes));
            let (users, disks) = (0, About::disks(&path)?);
            let one = Kept { owner, parent, base, size_bytes, is_removed, users, disks, _room };
            kept.insert(name, one);
        }
        let all = Mutex::new(All { kept, making: HashSet::new() });
        Ok(Arc::new(Self { folder, room, volumes, all, made: Condvar::new() }))
    }

    /// Those that were not removed.
    pub fn list(&self) -> Vec<Snapshot> {
        let all = self.all.lock();
        let there = all.kept.iter().filter(|(_, kept)| !kept.is_removed);
        let one = |(name, kept): (&SnapshotName, &Kept)| Snapshot {
            name: name.clone(),
            owner: kept.owner.clone(),
            size_bytes: kept.size_bytes,
        };
        there.map(one).collect()
    }

    /// What one is that was taken before.
    pub(crate) fn taken(&self, name: &SnapshotName) -> Option<Taken> {
        let all = self.all.lock();
        let kept = all.kept.get(name).filter(|kept| !kept.is_removed)?;
        Some(Taken { size_bytes: kept.size_bytes, paused: Duration::ZERO })
    }

    /// What the layers below one were called when it was taken. `None`: nobody said, or it is gone.
    pub fn base(&self, name: &SnapshotName) -> Option<String> {
        self.all.lock().kept.get(name)?.base.clone()
    }

    /// Removes one for good. What stands on it keeps its files until it is gone.
    pub fn remove(self: &Arc<Self>, name: &SnapshotName) -> io::Result<()> {
        let mut all = self.all.lock();
        let Some(kept) = all.kept.get_mut(name) else { return Ok(()) };
        if !kept.is_removed {
            About::mark_removed(&self.path(&kept.owner, name))?;
            kept.is_removed = true;
        }
        drop(all);
        self.collect();
        Ok(())
    }

    /// Keeps one for whoever stands on it from now on, with its disk where that stays. Such a disk
    /// may come back to one that was removed meanwhile.
    pub(crate) fn hold(
        self: &Arc<Self>,
        name: &SnapshotName,
        disk: Option<&VolumeName>,
    ) -> Result<Hold, SnapshotError> {
        let mut all = self.all.lock();
        let missing = || SnapshotError::Missing(name.clone());
        let kept = all.kept.get_mut(name).ok_or_else(missing)?;
        let returns = disk
            .is_some_and(|disk| kept.disks.contains(disk) && self.volumes.size_mb(disk).is_some());
        if kept.is_removed && !returns {
            return Err(missing());
        }
        if let Some(disk) = disk.filter(|_| !returns) {
            About::add_disk(&self.path(&kept.owner, name), disk)?;
            kept.disks.insert(disk.clone());
        }
        kept.users += 1;
        Ok(Hold { snapshots: Arc::clone(self), name: name.clone() })
    }

    /// The same for what stood on it before, whatever became of it since.
    pub(crate) fn hold_again(self: &Arc<Self>, name: &SnapshotName) -> Option<Hold> {
        self.all.lock().kept.get_mut(name)?.users += 1;
        Some(Hold { snapshots: Arc::clone(self), name: name.clone() })
    }

    /// Makes one of what an instance wrote. `still` has it stand still for as long as what it is
    /// given runs.
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
        // It may be removed meanwhile, and the instance end.
        let missing = |name: &SnapshotName| SnapshotError::Missing(name.clone());
        let hold = |name| self.hold_again(name).ok_or_else(|| missing(name));
        let under = parent.map(hold).transpose()?;
        if under.as_ref().is_some_and(|hold| hold.chain().len() >= CHAIN_MAX) {
            return Err(SnapshotError::TooLong { most: CHAIN_MAX });
        }
        let reserved = self.room.take(&new.owner, megabytes(written.bytes_at_most()?))?;
        let (size_bytes, paused) = written.copy_to(&making.folder.join(LAYER), still)?;
        let about = About { parent: parent.cloned(), size_bytes, base: new.base.clone() };
        about.write(&making.folder)?;
        drop(reserved);
        let room = self.room.take(&new.owner, megabytes(size_bytes))?;
        let kept = Kept {
            owner: new.owner.clone(),
            parent: parent.cloned(),
            base: new.base.clone(),
            size_bytes,
            is_removed: false,
            users: 0,
            disks: HashSet::new(),
            _room: room,
        };
        making.finish(&self.path(&new.owner, &new.name), kept)?;
        Ok(Taken { size_bytes, paused })
    }

    /// `None`: it is there.
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
        let making = Making { snapshots: self, name: new.name.clone(), folder };
        if !above.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(&above)?;
            files::sync_folder_of(&above)?;
        }
        DirBuilder::new().mode(0o700).create(&making.folder)?;
        Ok(Some(making))
    }

    /// A folder without anything.
    pub(crate) fn empty(&self) -> io::Result<PathBuf> {
        let folder = self.folder.join(EMPTY);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(folder)
    }

    fn path(&self, owner: &Owner, name: &SnapshotName) -> PathBuf {
        self.folder.join(owner.as_str()).join(name.as_str())
    }

    /// Removes what was removed and nothing stands on any more. The files go on a thread of their
    /// own: there may be many.
    pub(crate) fn collect(self: &Arc<Self>) {
        let mut going = Vec::new();
        let mut all = self.all.lock();
        while let Some(name) = all.unneeded(&self.volumes) {
            let Some(kept) = all.kept.remove(&name) else { break };
            let path = self.path(&kept.owner, &name);
            let gone = path.with_file_name(format!("{GONE}{name}"));
            // Without this name it is not found any more, whatever happens to its files.
            if let Err(error) = files::rename(&path, &gone) {
                tracing::error!(%error, snapshot = %name, "a removed snapshot cannot be moved away");
            }
            going.push((gone, kept));
        }
        drop(all);
        if going.is_empty() {
            return;
        }
        let remove = move || {
            // With its room, which is free when the files are gone.
            for (path, _kept) in going {
                if let Err(error) = std::fs::remove_dir_all(&path) {
                    tracing::error!(%error, path = %path.display(), "the files of a snapshot stay until the next start");
                }
            }
        };
        let thread = std::thread::Builder::new().name("snapshots".to_owned());
        if let Err(error) = thread.spawn(remove) {
            tracing::error!(%error, "the files of removed snapshots stay until the next start");
        }
    }
}

impl All {
    fn unneeded(&self, volumes: &Volumes) -> Option<SnapshotName> {
        let is_parent =
            |name: &SnapshotName| self.kept.values().any(|kept| kept.parent.as_ref() == Some(name));
        let unneeded = |(name, kept): &(&SnapshotName, &Kept)| {
            let has_disk = || kept.disks.iter().any(|disk| volumes.size_mb(disk).is_some());
            kept.is_removed && kept.users == 0 && !is_parent(name) && !has_disk()
        };
        self.kept.iter().find(unneeded).map(|(name, _)| name.clone())
    }
}

impl Hold {
    /// The layers that stand for it, newest first.
    pub(crate) fn layers(&self) -> Vec<PathBuf> {
        let path =
            |(owner, name): (Owner, SnapshotName)| self.snapshots.path(&owner, &name).join(LAYER);
        self.chain().into_iter().map(path).collect()
    }

    fn chain(&self) -> Vec<(Owner, SnapshotName)> {
        let all = self.snapshots.all.lock();
        let mut chain = Vec::new();
        let mut next = Some(&self.name);
        while let Some((name, kept)) = next.and_then(|name| all.kept.get_key_value(name)) {
            chain.push((kept.owner.clone(), name.clone()));
            next = kept.parent.as_ref();
        }
        chain
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(kept) = self.snapshots.all.lock().kept.get_mut(&self.name) {
            kept.users -= 1;
        }
        self.snapshots.collect();
    }
}

impl Making<'_> {
    /// Gives what was made its name. All of it is on the disk before and after that.
    fn finish(&self, path: &Path, kept: Kept) -> io::Result<()> {
        rustix::fs::syncfs(std::fs::File::open(&self.folder)?)?;
        files::rename(&self.folder, path)?;
        self.snapshots.all.lock().kept.insert(self.name.clone(), kept);
        Ok(())
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if self.folder.exists()
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            tracing::error!(%error, path = %self.folder.display(), "what was copied of a snapshot stays until the next start");
        }
        self.snapshots.all.lock().making.remove(&self.name);
        self.snapshots.made.notify_all();
    }
}

/// At least one, so that nothing is free.
fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(MIB).max(1)
}

/// Megabytes that all of them have on the disk.
pub(crate) fn allocated_mb(folder: &Path) -> io::Result<u64> {
    let folder = folder.join("snapshots");
    if !folder.exists() {
        return Ok(0);
    }
    let sizes = folders(&folder)?.into_iter().map(|(_, path)| About::read(&path));
    let sizes = sizes.map(|about| about.map(|about| about.map_or(0, |about| about.size_bytes)));
    Ok(sizes.sum::<io::Result<u64>>()?.div_ceil(MIB))
}

/// Those of all owners, whole or not.
fn folders(folder: &Path) -> io::Result<Vec<(Owner, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == EMPTY {
            continue;
        }
        let owner = entry.file_name().to_str().and_then(|name| Owner::new(name).ok());
        let Some(owner) = owner.filter(|_| entry.path().is_dir()) else {
            tracing::warn!(path = %entry.path().display(), "a folder of snapshots is nobody's");
            continue;
        };
        for one in std::fs::read_dir(entry.path())? {
            found.push((owner.clone(), one?.path()));
        }
    }
    Ok(found)
}
