//! Snapshots that are clones of disks, as those see them who begin with one without a disk.

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

/// One layer that an instance begins with.
#[derive(Debug)]
pub(crate) enum Layer {
    Folder(PathBuf),
    Image(Image),
}

/// A mount of a clone. All who have one share its device, whichever node mounted it.
#[derive(Debug)]
pub(crate) struct Image {
    device: Device,
    format: Format,
    mount: OwnedFd,
}

impl Layer {
    /// Where its files are, as long as this value lives.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Self::Folder(path) => path.clone(),
            Self::Image(image) => image.upper(),
        }
    }

    /// As an instance sees it.
    pub(crate) fn view(&self, users: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        match self {
            Self::Folder(path) => crate::disk::view_layer(path, users),
            Self::Image(image) => image.view(users),
        }
    }

    /// Where its files are for the calling thread, which has mounts of its own, and this empty
    /// folder for this layer.
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
    /// Mounting it completes what was in the journal of the disk when it was cloned.
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
