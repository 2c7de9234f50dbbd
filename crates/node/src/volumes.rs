//! Volumes: file systems that outlive the instances that use them. Also kept layers, which have
//! what an instance wrote over its layers.
//!
//! Each is a file with a file system in it. While it is used, it is behind a loop device that the
//! kernel releases with the last mount, so a killed node leaves nothing that a later one would have
//! to find. A user holds a lock on the file, which the loop device keeps as long as it exists: no
//! file system is ever mounted by two instances, whatever rows, records and other runs of this
//! program say.

mod clone;
mod copy;
mod image;
mod layer;
mod source;

use crate::error::VolumeError;
use crate::file_system::{Grown, Purpose};
use crate::names::Owner;
use crate::pool::{self, Clones};
use crate::sparse::BLOCK_BYTES;
use crate::written::Written;
use admission::{Limits, Permit, Pool};
pub(crate) use clone::{CloneSource, allocated_bytes};
use image::Image;
pub(crate) use layer::{KeptLayer, Under};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use source::Opened;
use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::instance::{VolumeName, VolumeSource};

const FOLDER: &str = "volumes";

/// What to make.
#[derive(Debug, Clone)]
pub struct NewVolume {
    pub name: VolumeName,
    pub owner: Owner,
    pub size_mb: u32,
    /// The volume whose content it gets at first.
    pub from: Option<VolumeSource>,
}

/// A volume that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: VolumeName,
    pub owner: Owner,
    pub size_mb: u32,
}

#[derive(Debug)]
pub struct Volumes {
    folder: PathBuf,
    pool: Arc<pool::Pool>,
    room: Pool<Owner>,
    held: Mutex<HashMap<VolumeName, Held>>,
    remote: source::Remote,
}

/// Where a volume is. A name is in one place only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Folder,
    /// In the pool, with others that are cloned.
    Pool,
}

/// What a volume takes of its owner's share.
#[derive(Debug)]
struct Held {
    owner: Owner,
    size_mb: u32,
    place: Place,
    /// The first is for its first size, the others for what it grew by.
    permits: Vec<Permit<Owner>>,
    /// Locked while it grows: it must not get a smaller size after a larger one.
    growing: Arc<Mutex<()>>,
}

/// A volume that is being filled. As long as it has no name, it is removed with this value.
#[derive(Debug)]
pub struct Filling {
    image: Image,
    mount: OwnedFd,
    held: Held,
}

impl Volumes {
    /// Finds the volumes that earlier nodes made in this folder and in the pool.
    pub(crate) fn open(folder: &Path, room: Limits, pool: &Arc<pool::Pool>) -> io::Result<Self> {
        let in_pool = pool.root().join(FOLDER);
        let is_apart = pool.root() != folder;
        let folder = folder.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let room = Pool::new("MB of volumes, disks and snapshots", room);
        let (pool, held) = (Arc::clone(pool), Mutex::default());
        let remote = source::Remote::default();
        let volumes = Self { folder, pool, room, held, remote };
        volumes.find(&volumes.folder, Place::Folder)?;
        if is_apart && in_pool.exists() {
            volumes.find(&in_pool, Place::Pool)?;
        }
        Ok(volumes)
    }

    /// Notes how much room there is by now.
    pub(crate) fn raise(&self, room: Limits) -> io::Result<()> {
        self.pool.grow(room.total)?;
        self.room.raise(room);
        Ok(())
    }

    fn find(&self, folder: &Path, place: Place) -> io::Result<()> {
        for (owner, path) in images(folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).map(VolumeName::new);
            let Some(Ok(name)) = name else {
                tracing::warn!(path = %path.display(), "a file among the volumes is none");
                continue;
            };
            let size_mb = image::size_mb(&path)?;
            let permits = vec![self.room.adopt(&owner, size_mb.into())];
            let growing = Arc::default();
            self.held.lock().insert(name, Held { owner, size_mb, place, permits, growing });
        }
        Ok(())
    }

    /// Returns the pool of room, which snapshots share.
    pub(crate) fn room(&self) -> Pool<Owner> {
        self.room.clone()
    }

    pub fn list(&self) -> Vec<Volume> {
        let held = self.held.lock();
        let one = |(name, held): (&VolumeName, &Held)| Volume {
            name: name.clone(),
            owner: held.owner.clone(),
            size_mb: held.size_mb,
        };
        held.iter().map(one).collect()
    }

    /// Returns the size of a volume in MB, if it exists.
    pub fn size_mb(&self, name: &VolumeName) -> Option<u32> {
        self.held.lock().get(name).map(|held| held.size_mb)
    }

    /// Returns the pool in which cloned files are.
    pub(crate) fn pool(&self) -> &Arc<pool::Pool> {
        &self.pool
    }

    /// Makes a volume, unless it exists already. It is complete and on disk when this returns.
    pub fn make(&self, new: &NewVolume) -> Result<(), VolumeError> {
        if self.size_mb(&new.name).is_some() {
            return Ok(());
        }
        if let Some(source) = &new.from {
            return self.copy(source, new);
        }
        let held = self.take(&new.owner, new.size_mb, Place::Folder)?;
        let image = Image::make(&self.folder_of(&held)?, new.size_mb, Purpose::Alone)?;
        image.sync()?;
        self.keep(&new.name, &image, held).map(drop)
    }

    fn copy(&self, source: &VolumeSource, new: &NewVolume) -> Result<(), VolumeError> {
        let Opened { file: from, place } = self.open_source(source, &new.owner)?;
        let needs_mb = image::size_of(&from)?;
        if needs_mb > new.size_mb {
            return Err(VolumeError::TooSmall { size_mb: new.size_mb, needs_mb });
        }
        // In the same place as its source, so that it can be a clone of it.
        let held = self.take(&new.owner, new.size_mb, place)?;
        let image = Image::copy_of(&self.folder_of(&held)?, &from, new.size_mb)?;
        image.sync()?;
        self.keep(&new.name, &image, held).map(drop)
    }

    /// Makes a volume for the caller to fill with files.
    pub fn begin(&self, owner: &Owner, size_mb: u32) -> Result<Filling, VolumeError> {
        let held = self.take(owner, size_mb, self.place_of_clones())?;
        let image = Image::make(&self.folder_of(&held)?, size_mb, Purpose::Cloned)?;
        let mount = image.attach()?;
        Ok(Filling { image, mount, held })
    }

    /// Gives a filled volume its name. It is on disk when this returns.
    pub fn finish(&self, filling: Filling, name: &VolumeName) -> Result<(), VolumeError> {
        let Filling { image, mount, held } = filling;
        rustix::fs::syncfs(crate::file_system::top(rustix::fd::AsFd::as_fd(&mount))?)
            .map_err(io::Error::from)?;
        drop(mount);
        image.sync()?;
        self.keep(name, &image, held)?;
        drop(image);
        // The kernel takes the mount down asynchronously. What others copy must not change any
        // more.
        let path = self.path(name)?;
        let released = Image::open(&path)?;
        released.map(drop).ok_or_else(|| VolumeError::InUse(name.clone()))
    }

    /// Makes a volume larger, even while it is used.
    pub fn grow(&self, name: &VolumeName, size_mb: u32) -> Result<(), VolumeError> {
        self.grow_by(name, size_mb, |path| image::grow(path, size_mb))
    }

    /// Checks whether a volume, which need not exist yet, could have this size now.
    pub(crate) fn require_room(
        &self,
        owner: &Owner,
        name: &VolumeName,
        size_mb: u32,
    ) -> Result<(), VolumeError> {
        let more_mb = size_mb.saturating_sub(self.size_mb(name).unwrap_or(0));
        if more_mb > 0 {
            drop(self.room.take(owner, more_mb.into())?);
        }
        Ok(())
    }

    /// Makes a volume larger by `work`, for which the other volumes do not wait.
    fn grow_by(
        &self,
        name: &VolumeName,
        size_mb: u32,
        work: impl FnOnce(&Path) -> io::Result<Grown>,
    ) -> Result<(), VolumeError> {
        let missing = || VolumeError::Missing(name.clone());
        let growing = self.held.lock().get(name).map(|held| Arc::clone(&held.growing));
        let growing = growing.ok_or_else(missing)?;
        let _alone = growing.lock();
        let (permit, path) = {
            let all = self.held.lock();
            let held = all.get(name).ok_or_else(missing)?;
            let more_mb = size_mb.saturating_sub(held.size_mb);
            if more_mb == 0 {
                return Ok(());
            }
            (self.room.take(&held.owner, more_mb.into())?, self.file(held, name))
        };
        match work(&path)? {
            Grown::Now => {}
            Grown::Later => tracing::warn!(
                volume = %name,
                "it is larger when its instance starts anew: this process lacks CAP_SYS_RESOURCE, and the volume is an ext4"
            ),
        }
        // It may have been removed meanwhile.
        let mut all = self.held.lock();
        let held = all.get_mut(name).ok_or_else(missing)?;
        held.permits.push(permit);
        held.size_mb = size_mb;
        Ok(())
    }

    /// Removes a volume for good. An instance that uses it can go on until it ends.
    pub fn remove(&self, name: &VolumeName) -> Result<(), VolumeError> {
        let Some(held) = self.held.lock().remove(name) else { return Ok(()) };
        // Without the lock, because a large file takes time. Its room is taken until it is gone.
        let removed = files::remove(&self.file(&held, name));
        if removed.is_err() {
            self.held.lock().insert(name.clone(), held);
        }
        Ok(removed?)
    }

    /// Mounts a volume, attached nowhere yet, for its only user from now on.
    pub(crate) fn attach(&self, name: &VolumeName) -> Result<OwnedFd, VolumeError> {
        let image = self.open_image(name)?;
        image.reserve();
        Ok(image.attach()?)
    }

    fn open_image(&self, name: &VolumeName) -> Result<Image, VolumeError> {
        let image = Image::open(&self.path(name)?)?;
        image.ok_or_else(|| VolumeError::InUse(name.clone()))
    }

    /// Mounts a kept layer for reading, even while an instance writes into it. Its files have the
    /// owners that the instance sees. As long as the returned value lives, nobody else can start
    /// using it.
    pub(crate) fn look_into(&self, name: &VolumeName) -> Result<Written, VolumeError> {
        let path = self.path(name)?;
        let mount = match image::look_into(&path)? {
            Some(mount) => mount,
            None => self.open_image(name)?.attach()?,
        };
        Ok(Written { mount, root: 0 })
    }

    fn take(&self, owner: &Owner, size_mb: u32, place: Place) -> Result<Held, VolumeError> {
        let permits = vec![self.room.take(owner, size_mb.into())?];
        Ok(Held { owner: owner.clone(), size_mb, place, permits, growing: Arc::default() })
    }

    /// Gives a complete image on disk its name. Returns false if somebody else has made one of the
    /// same name meanwhile.
    fn keep(&self, name: &VolumeName, image: &Image, held: Held) -> Result<bool, VolumeError> {
        let path = self.file(&held, name);
        let mut all = self.held.lock();
        if all.contains_key(name) {
            return Ok(false);
        }
        image.name(&path)?;
        all.insert(name.clone(), held);
        Ok(true)
    }

    pub(crate) fn path(&self, name: &VolumeName) -> Result<PathBuf, VolumeError> {
        self.find_place(name).map(|(_, path)| path)
    }

    fn find_place(&self, name: &VolumeName) -> Result<(Place, PathBuf), VolumeError> {
        let all = self.held.lock();
        let held = all.get(name).ok_or_else(|| VolumeError::Missing(name.clone()))?;
        Ok((held.place, self.file(held, name)))
    }

    fn file(&self, held: &Held, name: &VolumeName) -> PathBuf {
        self.folder_in(held.place).join(held.owner.as_str()).join(name.as_str())
    }

    fn folder_in(&self, place: Place) -> PathBuf {
        match place {
            Place::Folder => self.folder.clone(),
            Place::Pool => self.pool.root().join(FOLDER),
        }
    }

    /// Returns where files go that are to be cloned.
    fn place_of_clones(&self) -> Place {
        match self.pool.clones() {
            Clones::Pool(_) => Place::Pool,
            Clones::Folder | Clones::Missing => Place::Folder,
        }
    }

    /// Returns true if the volume can be cloned.
    fn is_cloned(&self, name: &VolumeName) -> bool {
        let place = self.held.lock().get(name).map(|held| held.place);
        match self.pool.clones() {
            Clones::Pool(_) => place == Some(Place::Pool),
            Clones::Folder => place.is_some(),
            Clones::Missing => false,
        }
    }

    /// Returns the owner's folder for such volumes, and makes it if needed.
    fn folder_of(&self, held: &Held) -> io::Result<PathBuf> {
        let folder = self.folder_in(held.place).join(held.owner.as_str());
        if !folder.exists() {
            make_folder(&folder)?;
        }
        Ok(folder)
    }
}

/// Makes a folder and those above it. All of them are on disk when this returns.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    files::sync_folder_of(folder)?;
    folder.parent().map_or(Ok(()), files::sync_folder_of)
}

impl Filling {
    /// Returns the folder to fill. Valid as long as this value lives.
    pub fn folder(&self) -> PathBuf {
        use rustix::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.mount.as_raw_fd()))
    }
}

/// Returns how much disk space all volumes and cloned files take so far, in MB.
pub(crate) fn allocated_mb(folder: &Path) -> io::Result<u64> {
    let mut bytes = pool::allocated_bytes(folder)?;
    if folder.join(FOLDER).exists() {
        for (_, path) in images(&folder.join(FOLDER))? {
            bytes += std::fs::symlink_metadata(path)?.blocks() * BLOCK_BYTES;
        }
    }
    Ok(bytes >> 20)
}

/// Lists the files of all owners.
fn images(folder: &Path) -> io::Result<Vec<(Owner, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let owner = entry.file_name().to_str().and_then(|name| Owner::new(name).ok());
        let Some(owner) = owner.filter(|_| entry.path().is_dir()) else {
            tracing::warn!(path = %entry.path().display(), "a folder of volumes is nobody's");
            continue;
        };
        for file in std::fs::read_dir(entry.path())? {
            found.push((owner.clone(), file?.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_volumes_do_not_wait_for_one_that_grows() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool::Pool::open(folder.path(), 1_000).unwrap();
        let room = Limits { total: 1_000, share: 1_000 };
        let volumes = Volumes::open(folder.path(), room, &pool).unwrap();
        let name = VolumeName::new("one").unwrap();
        let owner = Owner::new("somebody").unwrap();
        volumes.make(&NewVolume { name: name.clone(), owner, size_mb: 8, from: None }).unwrap();
        let grow = |path: &Path| {
            assert!(volumes.held.try_lock().is_some(), "whoever lists volumes would wait");
            image::grow(path, 16)
        };
        volumes.grow_by(&name, 16, grow).unwrap();
        assert_eq!(volumes.size_mb(&name), Some(16));
        // A volume that is removed while it grows stays removed.
        let grow = |_: &Path| {
            volumes.remove(&name).unwrap();
            Ok(Grown::Now)
        };
        let grown = volumes.grow_by(&name, 32, grow);
        assert!(matches!(grown, Err(VolumeError::Missing(_))), "{grown:?}");
        assert_eq!(volumes.room().held(), 0);
    }
    #[test]
    fn a_share_that_is_raised_has_room_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pool = pool::Pool::open(folder.path(), 1).unwrap();
        let little = Limits { total: 1, share: 1 };
        let volumes = Volumes::open(folder.path(), little, &pool).unwrap();
        let (name, owner) = (VolumeName::new("one").unwrap(), Owner::new("somebody").unwrap());
        let new = NewVolume { name, owner, size_mb: 8, from: None };
        assert!(matches!(volumes.make(&new), Err(VolumeError::Refused(_))));
        volumes.raise(Limits { total: 100, share: 50 }).unwrap();
        volumes.make(&new).unwrap();
        volumes.raise(little).unwrap();
        assert_eq!(volumes.room().limits(), Limits { total: 100, share: 50 });
    }
}
