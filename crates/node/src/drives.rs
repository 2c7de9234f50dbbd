//! Drives: file systems that many instances have mounted at once, and that are mounted and
//! unmounted while they run.
//!
//! A drive is stored like a volume, as a file behind a loop device. There is never more than one
//! device for a file. Each instance gets its own mount of one folder, with its own user ids, so
//! that all of them see the same owners. No such mount is ever attached to the machine's own tree.
//!
//! An instance may be hostile: its root renames folders and plants links while a mount is made. So
//! paths are walked one folder at a time, from inside the instance's namespace, and no link is
//! followed.

mod inside;
mod remove;
mod walk;

use crate::error::{DriveError, VolumeError};
use crate::file_system::{self, Format};
use crate::loops::Device;
use crate::sys;
use crate::volumes::Volumes;
pub(crate) use inside::{Mounting, on_own_thread};
use parking_lot::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, fstat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use types::instance::{DriveMount, VolumeName};
use walk::{steps, walk};

/// How many unused drives are kept ready. Drives that instances have mounted are found again
/// without this.
const READY_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Drives {
    ready: Mutex<HashMap<VolumeName, Arc<Slot>>>,
}

/// Locked while a drive is made ready, so that a caller waits only for the drive it wants.
type Slot = Mutex<Option<Arc<Drive>>>;

#[derive(Debug)]
struct Drive {
    device: Device,
    format: Format,
    mount: OwnedFd,
}

impl Drives {
    /// Makes a mount of a drive's folder, attached nowhere yet, with owners shifted as `users` maps
    /// them.
    pub(crate) fn view(
        &self,
        volumes: &Volumes,
        wanted: &DriveMount,
        users: BorrowedFd<'_>,
    ) -> Result<OwnedFd, DriveError> {
        self.usable(volumes, &wanted.drive)?.view(wanted, users)
    }

    /// Mounts a part of a drive in a running instance, unless it is mounted there already.
    pub(crate) fn mount(
        &self,
        volumes: &Volumes,
        instance: &Mounting<'_>,
        wanted: &DriveMount,
    ) -> Result<(), DriveError> {
        let drive = self.usable(volumes, &wanted.drive)?;
        let (users, root) = instance.users()?;
        let view = drive.view(wanted, users.as_fd())?;
        instance.attach(view.as_fd(), drive.number()?, root, &wanted.place)
    }

    /// Unmounts it. `others` are the places in the instance where the same drive may stay mounted.
    pub(crate) fn unmount(
        &self,
        volumes: &Volumes,
        instance: &Mounting<'_>,
        drive: &VolumeName,
        (place, others): (&str, &[String]),
    ) -> Result<(), DriveError> {
        let number = self.get(volumes, drive)?.number()?;
        if instance.detach(number, place)? {
            return Ok(());
        }
        // Root in the instance may have renamed a folder above, which hides the mount from its
        // path.
        let stray = instance.places_of(number)?.into_iter().find(|at| !others.contains(at));
        match stray {
            None => Ok(()),
            Some(at) => Err(DriveError::Place(format!(
                "`{place}`: something in the instance has moved it to `{at}`; move it back"
            ))),
        }
    }

    /// Opens the root folder of a drive.
    pub(crate) fn root(&self, volumes: &Volumes, name: &VolumeName) -> Result<OwnedFd, DriveError> {
        let drive = self.get(volumes, name)?;
        Ok(file_system::top(drive.mount.as_fd())?)
    }

    /// Removes a folder of a drive with everything in it. Returns whether it existed.
    pub(crate) fn remove_folder(
        &self,
        volumes: &Volumes,
        name: &VolumeName,
        path: &str,
    ) -> Result<bool, DriveError> {
        let drive = self.get(volumes, name)?;
        let removed = remove::folder(drive.mount.as_fd(), path);
        removed.map_err(|error| DriveError::at("the folder of the drive", path, error))
    }

    /// Drops a drive from this map. Instances that have it mounted keep it until they unmount it.
    pub(crate) fn forget(&self, name: &VolumeName) {
        self.ready.lock().remove(name);
    }

    /// Like [`Drives::get`], but lets go of a drive that has stopped, as a file system does that
    /// could not write its journal because the machine's disk was full. It goes on once nothing has
    /// it mounted, so the mount here must not be what keeps it.
    fn usable(&self, volumes: &Volumes, name: &VolumeName) -> Result<Arc<Drive>, DriveError> {
        let drive = self.get(volumes, name)?;
        if !drive.format.has_stopped(drive.mount.as_fd()) {
            return Ok(drive);
        }
        tracing::warn!(drive = %name, "its file system has stopped; it goes on once nothing has it mounted");
        drop(drive);
        self.forget(name);
        self.get(volumes, name)
    }

    fn get(&self, volumes: &Volumes, name: &VolumeName) -> Result<Arc<Drive>, DriveError> {
        let slot = {
            let mut ready = self.ready.lock();
            if ready.len() >= READY_MAX && !ready.contains_key(name) {
                // Slots that are being made ready right now are referenced elsewhere too, and stay.
                ready.retain(|_, slot| Arc::strong_count(slot) > 1);
            }
            Arc::clone(ready.entry(name.clone()).or_default())
        };
        let mut slot = slot.lock();
        if let Some(drive) = &*slot {
            return Ok(Arc::clone(drive));
        }
        let made = Drive::open(volumes, name).map(Arc::new);
        if made.is_err() {
            self.forget(name);
        }
        Ok(Arc::clone(slot.insert(made?)))
    }
}

impl Drive {
    /// Uses the loop device that an earlier node or an instance still has for the file, or sets one
    /// up.
    fn open(volumes: &Volumes, name: &VolumeName) -> Result<Self, VolumeError> {
        let file = File::open(volumes.path(name)?)?;
        let format = Format::read(&file)?;
        if let Some(device) = Device::of_file(&file)? {
            let mount = device.mount(format.name(), format.options())?;
            return Ok(Self { device, format, mount });
        }
        let mount = volumes.attach(name)?;
        let gone = || io::Error::other("its loop device is gone");
        let device = Device::of_file(&file)?.ok_or_else(gone)?;
        Ok(Self { device, format, mount })
    }

    /// Makes a mount of one of the drive's folders, attached nowhere, with owners shifted as `users`
    /// maps them.
    fn view(&self, wanted: &DriveMount, users: BorrowedFd<'_>) -> Result<OwnedFd, DriveError> {
        let view = self.folder(wanted)?;
        sys::share_owners(view.as_fd(), users).map_err(io::Error::from)?;
        if wanted.read_only {
            sys::make_read_only(view.as_fd()).map_err(io::Error::from)?;
        }
        Ok(view)
    }

    /// Returns the device number by which the kernel tells file systems apart.
    fn number(&self) -> io::Result<u64> {
        Ok(fstat(&self.mount)?.st_dev)
    }

    /// Makes a mount of one of the drive's folders, attached nowhere.
    fn folder(&self, wanted: &DriveMount) -> Result<OwnedFd, DriveError> {
        let whole = self.device.mount(self.format.name(), self.format.options())?;
        let path = &wanted.folder;
        let found = walk(whole.as_fd(), path, !wanted.read_only);
        let found = found.and_then(|_| match steps(path).next() {
            None => Ok(whole),
            Some(_) => on_own_thread(|| part_of(whole.as_fd(), path)),
        });
        found.map_err(|error| DriveError::at("the folder of the drive", path, error))
    }
}

/// Like [`part_of`], on a thread of its own.
pub(crate) fn folder_of(whole: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    Ok(on_own_thread(|| part_of(whole, path))?)
}

/// Makes a mount of a folder of a file system that is not mounted anywhere. Older kernels can do
/// that only with a folder in a mount tree, so this thread gets its own tree, which ends with the
/// thread.
fn part_of(whole: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    sys::leave_mounts()?;
    move_mount(whole, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let folder = walk(whole, path, false)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(&folder, "", flags)
}
