//! Snapshots that are clones of disks, as seen by instances that start from one without a disk of
//! their own.

use crate::drives::folder_of;
use crate::file_system::Format;
use crate::loops::{Cache, Device};
use crate::sys;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{MoveMountFlags, move_mount};
use std::io;
use std::path::{Path, PathBuf};

const UPPER: &str = "upper";

/// One layer that an instance starts from.
#[derive(Debug)]
pub(crate) enum Layer {
    Folder(PathBuf),
    Image(Image),
}

/// A mount of a clone. All users of a clone share its device, whichever node mounted it.
#[derive(Debug)]
pub(crate) struct Image {
    device: Device,
    format: Format,
    mount: OwnedFd,
}

impl Layer {
    /// Returns where its files are. Valid as long as this value lives.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Folder(path) => path.clone(),
            Self::Image(image) => image.upper(),
        }
    }

    /// Makes a view of the layer for an instance.
    pub(crate) fn view(&self, users: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match self {
            Self::Folder(path) => crate::disk::view_layer(path, users),
            Self::Image(image) => image.view(users),
        }
    }

    /// Returns where its files are for the calling thread, which has its own mount namespace. `at`
    /// is an empty folder for this layer.
    pub(super) fn attach(&self, at: &Path) -> io::Result<PathBuf> {
        match self {
            Self::Folder(path) => Ok(path.clone()),
            Self::Image(image) => {
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                move_mount(image.again()?, "", CWD, at, flags)?;
                Ok(at.join(UPPER))
            }
        }
    }
}

impl Image {
    /// Mounts the clone. This also replays what was in the disk's journal when it was cloned.
    pub(super) fn open(file: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(file, flags, Mode::empty())?;
        let format = Format::read(&file)?;
        let sector_bytes = format.sector_bytes(&file)?;
        let device = Device::shared(&file, Cache::Once { sector_bytes })?;
        let mount = device.mount(format.name(), format.options())?;
        sys::make_read_only(mount.as_fd())?;
        Ok(Self { device, format, mount })
    }

    fn upper(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{UPPER}", self.mount.as_raw_fd()))
    }

    fn view(&self, users: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let view = folder_of(self.again()?.as_fd(), UPPER)?;
        sys::shift_owners(view.as_fd(), users)?;
        Ok(view)
    }

    fn again(&self) -> io::Result<OwnedFd> {
        let mount = self.device.mount(self.format.name(), self.format.options())?;
        sys::make_read_only(mount.as_fd())?;
        Ok(mount)
    }
}
