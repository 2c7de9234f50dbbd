//! File systems that outlive the instances that use them: volumes, and what an instance wrote over
//! its layers where that is kept.
//!
//! Each is a file with a file system in it. Used, it stands behind a loop device that the kernel
//! lets go of with the last mount, so a killed node leaves nothing that a later one would have to
//! find. Whoever uses one holds a lock on its file, which the loop device keeps as long as it lives:
//! no file system is ever mounted by two instances, whatever rows, records and runs of this program
//! say.

mod copy;
mod image;
mod layer;

use crate::error::VolumeError;
use crate::extras::Written;
use crate::file_system::Grown;
use crate::spec::Owner;
use admission::{Limits, Permit, Pool};
use image::Image;
pub(crate) use layer::KeptLayer;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use types::instance::VolumeName;

/// What to make.
#[derive(Debug, Clone)]
pub struct NewVolume {
    pub name: VolumeName,
    pub owner: Owner,
    pub size_mb: u32,
    /// What it is filled with at first.
    pub from: Option<VolumeName>,
}

/// One that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: VolumeName,
    pub owner: Owner,
    pub size_mb: u32,
}

#[derive(Debug)]
pub struct Volumes {
    folder: PathBuf,
    room: Pool<Owner>,
    held: Mutex<HashMap<VolumeName, Held>>,
}

/// What a volume holds of its owner's share.
#[derive(Debug)]
struct Held {
    owner: Owner,
    size_mb: u32,
    /// The first for its first size, others for what it grew by.
    permits: Vec<Permit<Owner>>,
}

/// A file system that is being filled. Without a name, it is gone with this value.
#[derive(Debug)]
pub struct Filling {
    image: Image,
    mount: OwnedFd,
    held: Held,
}

impl Volumes {
    /// Finds those that earlier nodes made in this folder.
    pub(crate) fn open(folder: &Path, room: Limits) -> io::Result<Self> {
        let folder = folder.join("volumes");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        // As the kernel names files behind loop devices.
        let folder = folder.canonicalize()?;
        let room = Pool::new("MB of volumes, disks and snapshots", room);
        let mut held = HashMap::new();
        for (owner, path) in images(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).map(VolumeName::new);
            let Some(Ok(name)) = name else {
                tracing::warn!(path = %path.display(), "a file among the volumes is none");
                continue;
            };
            let size_mb = image::size_mb(&path)?;
            let permits = vec![room.adopt(&owner, size_mb.into())];
            held.insert(name, Held { owner, size_mb, permits });
        }
        Ok(Self { folder, room, held: Mutex::new(held) })
    }

    /// What snapshots take their room of, too.
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

    /// Megabytes of one that there is.
    pub fn size_mb(&self, name: &VolumeName) -> Option<u32> {
        self.held.lock().get(name).map(|held| held.size_mb)
    }

    /// What one takes of the machine's disk by now.
    pub fn used_bytes(&self, name: &VolumeName) -> Result<u64, VolumeError> {
        Ok(std::fs::symlink_metadata(self.path(name)?)?.blocks() * BLOCK_BYTES)
    }

    /// Makes one, unless it is there. It is whole and on the disk when this returns.
    pub fn make(&self, new: &NewVolume) -> Result<(), VolumeError> {
        if self.size_mb(&new.name).is_some() {
            return Ok(());
        }
        let held = self.take(&new.owner, new.size_mb)?;
        let folder = self.folder_of(&new.owner)?;
        let image = match &new.from {
            Some(source) => {
                let gone = |_| VolumeError::SourceGone(source.clone());
                let source = self.path(source).map_err(gone)?;
                let needs_mb = image::size_mb(&source)?;
                if needs_mb > new.size_mb {
                    return Err(VolumeError::TooSmall { size_mb: new.size_mb, needs_mb });
                }
                Image::copy(&folder, &source, new.size_mb)?
            }
            None => Image::make(&folder, new.size_mb)?,
        };
        self.keep(&new.name, &image, held)
    }

    /// Makes one for whoever fills it with files.
    pub fn begin(&self, owner: &Owner, size_mb: u32) -> Result<Filling, VolumeError> {
        let held = self.take(owner, size_mb)?;
        let image = Image::make(&self.folder_of(owner)?, size_mb)?;
        let mount = image.attach()?;
        Ok(Filling { image, mount, held })
    }

    /// Gives what was filled its name. It is on the disk when this returns.
    pub fn finish(&self, filling: Filling, name: &VolumeName) -> Result<(), VolumeError> {
        let Filling { image, mount, held } = filling;
        rustix::fs::syncfs(crate::file_system::top(rustix::fd::AsFd::as_fd(&mount))?)
            .map_err(io::Error::from)?;
        drop(mount);
        self.keep(name, &image, held)?;
        drop(image);
        // The kernel takes the mount down by itself. What others copy must not change any more.
        let path = self.path(name)?;
        let released = Image::open(&path)?;
        released.map(drop).ok_or_else(|| VolumeError::InUse(name.clone()))
    }

    /// Makes one larger, also while it is used.
    pub fn grow(&self, name: &VolumeName, size_mb: u32) -> Result<(), VolumeError> {
        let mut all = self.held.lock();
        let missing = || VolumeError::Missing(name.clone());
        let held = all.get_mut(name).ok_or_else(missing)?;
        let more_mb = size_mb.saturating_sub(held.size_mb);
        if more_mb == 0 {
            return Ok(());
        }
        let permit = self.room.take(&held.owner, more_mb.into())?;
        let path = self.folder.join(held.owner.as_str()).join(name.as_str());
        match image::grow(&path, size_mb)? {
            Grown::Now => {}
            Grown::Later => tracing::warn!(
                volume = %name,
                "it is larger when its instance starts anew: this process lacks CAP_SYS_RESOURCE, and the volume is an ext4"
            ),
        }
        held.permits.push(permit);
        held.size_mb = size_mb;
        Ok(())
    }

    /// Removes one for good. Who uses it still does so until its end.
    pub fn remove(&self, name: &VolumeName) -> Result<(), VolumeError> {
        let Some(held) = self.held.lock().remove(name) else { return Ok(()) };
        // Without the lock: a large file takes its time. Its room is taken until it is gone.
        let removed = files::remove(&self.folder.join(held.owner.as_str()).join(name.as_str()));
        if removed.is_err() {
            self.held.lock().insert(name.clone(), held);
        }
        Ok(removed?)
    }

    /// A mount of it, attached nowhere yet, for the only one who uses it from now on.
    pub(crate) fn attach(&self, name: &VolumeName) -> Result<OwnedFd, VolumeError> {
        let image = Image::open(&self.path(name)?)?;
        Ok(image.ok_or_else(|| VolumeError::InUse(name.clone()))?.attach()?)
    }

    /// A kept layer, to be read beside whoever writes into it. Its files have the owners that the
    /// instance sees. For as long as the answer lives, nobody else begins to use it.
    pub(crate) fn look_into(&self, name: &VolumeName) -> Result<Written, VolumeError> {
        let path = self.path(name)?;
        let mount = image::look_into(&path)?.map_or_else(|| self.attach(name), Ok)?;
        Ok(Written { mount, root: 0 })
    }

    fn take(&self, owner: &Owner, size_mb: u32) -> Result<Held, VolumeError> {
        let permits = vec![self.room.take(owner, size_mb.into())?];
        Ok(Held { owner: owner.clone(), size_mb, permits })
    }

    fn keep(&self, name: &VolumeName, image: &Image, held: Held) -> Result<(), VolumeError> {
        let path = self.folder_of(&held.owner)?.join(name.as_str());
        // Before the lock, for which everybody's volumes wait.
        image.sync()?;
        let mut all = self.held.lock();
        match image.name(&path) {
            // Somebody else made the same meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
            named => named?,
        }
        all.insert(name.clone(), held);
        Ok(())
    }

    pub(crate) fn path(&self, name: &VolumeName) -> Result<PathBuf, VolumeError> {
        let all = self.held.lock();
        let held = all.get(name).ok_or_else(|| VolumeError::Missing(name.clone()))?;
        Ok(self.folder.join(held.owner.as_str()).join(name.as_str()))
    }

    fn folder_of(&self, owner: &Owner) -> io::Result<PathBuf> {
        let folder = self.folder.join(owner.as_str());
        if !folder.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            files::sync_folder_of(&folder)?;
        }
        Ok(folder)
    }
}

impl Filling {
    /// Where its files go, as long as this value lives.
    pub fn folder(&self) -> PathBuf {
        use rustix::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}", self.mount.as_raw_fd()))
    }
}

/// Megabytes that all of them have on the disk by now.
pub(crate) fn allocated_mb(folder: &Path) -> io::Result<u64> {
    let folder = folder.join("volumes");
    if !folder.exists() {
        return Ok(0);
    }
    let sizes = images(&folder)?
        .into_iter()
        .map(|(_, path)| io::Result::Ok(std::fs::symlink_metadata(path)?.blocks() * BLOCK_BYTES));
    Ok(sizes.sum::<io::Result<u64>>()? >> 20)
}

/// In which the kernel counts what a file has on the disk.
const BLOCK_BYTES: u64 = 512;

/// The files of all owners.
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
