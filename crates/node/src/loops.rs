//! Loop devices: files as block devices, and the file systems on them.
//!
//! A device is free again as soon as nobody has it open or mounted, so none is left over wherever
//! this process is stopped.

use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::io;
use std::path::Path;

const CONTROL: &str = "/dev/loop-control";
/// A loop device that was free may be somebody else's a moment later.
const TRIES: usize = 32;

/// Whether the machine caches what the file system on the device caches already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    Twice,
    /// Where the file's own file system can: what is read and written goes past its cache.
    Once,
}

/// A device before a file.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) fd: OwnedFd,
    path: String,
}

impl Device {
    /// Puts one before a file. It holds on to the file, with its lock, as long as it is used.
    pub(crate) fn attach(file: impl AsFd, cache: Cache) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let control = open(CONTROL, flags, Mode::empty()).map_err(|error| {
            let kind = io::Error::from(error).kind();
            io::Error::new(kind, format!("{CONTROL} cannot be used: {error}"))
        })?;
        for _ in 0..TRIES {
            let path = format!("/dev/loop{}", sys::free_loop(control.as_fd())?);
            let fd = open(&path, flags, Mode::empty())?;
            match sys::begin_loop(fd.as_fd(), file.as_fd(), cache == Cache::Once) {
                Ok(()) => return Ok(Self { fd, path }),
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "no loop device stays free"))
    }

    /// The one that is before the file of this name, if there is one. It stays as long as the
    /// answer lives.
    pub(crate) fn of_file(file: &Path) -> io::Result<Option<Self>> {
        for block in std::fs::read_dir("/sys/block")? {
            let block = block?;
            let name = block.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with("loop")) else {
                continue;
            };
            if !is_before(&block.path(), file) {
                continue;
            }
            let path = format!("/dev/{name}");
            let fd = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            // It could have become another's before it was open here.
            if is_before(&block.path(), file) {
                return Ok(Some(Self { fd, path }));
            }
        }
        Ok(None)
    }

    /// A mount of what is on it, attached nowhere. All mounts of one device are of one file system.
    /// Nothing on it has rights or is a device.
    pub(crate) fn mount(&self, kind: &str, options: &[&str]) -> io::Result<OwnedFd> {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(context.as_fd(), "source", self.path.as_str())?;
        for option in options {
            fsconfig_set_flag(context.as_fd(), *option)?;
        }
        fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
    }

    /// Takes in that the file was made longer.
    pub(crate) fn see_size(&self) -> io::Result<()> {
        Ok(sys::see_loop_size(self.fd.as_fd())?)
    }
}

fn is_before(block: &Path, file: &Path) -> bool {
    let said = std::fs::read_to_string(block.join("loop/backing_file"));
    said.is_ok_and(|said| Path::new(said.trim_end_matches('\n')) == file)
}
