//! One file with a file system in it.

use super::copy::copy_blocks;
use crate::file_system::{Format, Grown, Purpose};
use crate::loops::{Cache, Device, lock_when_released};
use crate::pool;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, flock, fstat, fsync, ftruncate, open, unlinkat,
};
use std::io;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// A file with a file system, open and locked by this value.
#[derive(Debug)]
pub(super) struct Image {
    file: OwnedFd,
    /// The device through which it was mounted when it was made. The kernel may not have finished
    /// with that mount yet, and a second device for the file would mean a second, conflicting
    /// mount.
    device: Option<Device>,
}

impl Image {
    /// Makes an empty one without a name.
    pub(super) fn make(folder: &Path, size_mb: u32, purpose: Purpose) -> io::Result<Self> {
        let mut image = Self::nameless(folder)?;
        ftruncate(&image.file, bytes(size_mb))?;
        let format = Format::of_new(size_mb);
        format.lay_out(&image.file, purpose)?;
        if format == Format::Ext4 {
            let device = image.new_device(format)?;
            let mount = device.mount(format.name(), format.options())?;
            // Nobody asked for this folder.
            unlinkat(mount, "lost+found", AtFlags::REMOVEDIR)?;
            image.device = Some(device);
        }
        Ok(image)
    }

    /// Makes one without a name from the content of another file. They share blocks if their file
    /// system can do that.
    pub(super) fn copy(folder: &Path, source: &Path, size_mb: u32) -> io::Result<Self> {
        let source =
            open(source, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        Self::copy_of(folder, &source, size_mb)
    }

    /// Does the same with a file that is open.
    pub(super) fn copy_of(folder: &Path, source: &OwnedFd, size_mb: u32) -> io::Result<Self> {
        Format::require_whole(source)?;
        let image = Self::nameless(folder)?;
        copy_blocks(source, &image.file)?;
        ftruncate(&image.file, bytes(size_mb))?;
        Ok(image)
    }

    /// Makes an empty file without a name, for the caller to fill.
    pub(super) fn nameless(folder: &Path) -> io::Result<Self> {
        let file = pool::nameless(folder)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { file, device: None })
    }

    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Waits until everything is on disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.file)?)
    }

    /// Gives an image that is on disk a name, which is on disk too when this returns.
    pub(super) fn name(&self, path: &Path) -> io::Result<()> {
        pool::name(&self.file, path)
    }

    /// Opens and locks an existing one. `None` if somebody uses it.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = open_to_write(path)?;
        Ok(lock_when_released(&file)?.then_some(Self { file, device: None }))
    }

    /// Makes it go on when the machine's disk is full, see [`Format::reserve`]. It can be used
    /// without this, so a disk that is full already is no reason to fail.
    pub(super) fn reserve(&self) {
        let reserved = Format::read(&self.file).and_then(|format| format.reserve(&self.file));
        if let Err(error) = reserved {
            tracing::warn!(%error, "a volume may stop if the machine's disk gets full");
        }
    }

    fn new_device(&self, format: Format) -> io::Result<Device> {
        let sector_bytes = format.sector_bytes(&self.file)?;
        Device::attach(&self.file, Cache::Once { sector_bytes })
    }

    /// Mounts it, attached nowhere. The lock lasts as long as any of its mounts.
    pub(super) fn attach(&self) -> io::Result<OwnedFd> {
        let format = Format::read(&self.file)?;
        format.grow_unmounted(&self.file)?;
        let mount = |device: &Device| device.mount(format.name(), format.options());
        let mount = match &self.device {
            Some(device) => mount(device)?,
            None => mount(&self.new_device(format)?)?,
        };
        let size_mb = size_of(&self.file)?;
        if format.is_short(mount.as_fd(), size_mb)? {
            format.grow(mount.as_fd(), size_mb)?;
        }
        Ok(mount)
    }
}

/// Grows a file and the file system in it, even if it is in use.
pub(super) fn grow(path: &Path, size_mb: u32) -> io::Result<Grown> {
    let file = open_to_write(path)?;
    Format::require_whole(&file)?;
    ftruncate(&file, bytes(size_mb))?;
    fsync(&file)?;
    // An unused one is grown when it is next mounted.
    let Some(device) = Device::of_file(&file)? else { return Ok(Grown::Now) };
    device.see_size()?;
    let format = Format::read(&file)?;
    let mount = device.mount(format.name(), format.options())?;
    format.grow(mount.as_fd(), size_mb)
}

/// Mounts one that is in use for reading. `None` if nobody uses it.
pub(super) fn look_into(path: &Path) -> io::Result<Option<OwnedFd>> {
    let file = open_to_write(path)?;
    let Some(device) = Device::of_file(&file)? else { return Ok(None) };
    let format = Format::read(&file)?;
    let mount = device.mount(format.name(), format.options())?;
    crate::sys::make_read_only(mount.as_fd())?;
    Ok(Some(mount))
}

pub(super) fn size_mb(path: &Path) -> io::Result<u32> {
    let bytes = std::fs::symlink_metadata(path)?.len();
    u32::try_from(bytes / MIB).map_err(io::Error::other)
}

pub(super) fn size_of(file: &OwnedFd) -> io::Result<u32> {
    u32::try_from(fstat(file)?.st_size.unsigned_abs() / MIB).map_err(io::Error::other)
}

pub(super) fn open_to_write(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(open(path, flags, Mode::empty())?)
}

fn bytes(size_mb: u32) -> u64 {
    u64::from(size_mb) * MIB
}
