//! Loop devices, which make block devices of files, and the file systems on them.
//!
//! A device is free again as soon as nobody has it open or mounted, so none is left over, wherever
//! this process is stopped.

use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::io;
use std::time::{Duration, Instant};

const CONTROL: &str = "/dev/loop-control";
/// How often to try: somebody else may take a free loop device in the meantime.
const TRIES: usize = 32;
/// How long to wait for a file that is locked but has no device. Either somebody is just setting
/// one up, or the kernel is still unmounting an instance whose last process has ended.
const SHARED_TIMEOUT: Duration = Duration::from_secs(2);
const SHARED_PAUSE: Duration = Duration::from_millis(2);

/// How long to wait for the file of an instance that is gone but still holds its file systems: the
/// kernel takes its mounts down after its last process.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
const RELEASE_PAUSE: Duration = Duration::from_millis(2);

/// Whether the machine caches again what the file system on the device caches already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    Twice,
    /// Reads and writes bypass the cache of the file's own file system, if that supports it with
    /// sectors of this size.
    Once {
        sector_bytes: u32,
    },
}

/// A loop device for a file.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) fd: OwnedFd,
    path: String,
}

impl Device {
    /// Sets up a device for a file. It holds the file, with its lock, as long as it is used.
    pub(crate) fn attach(file: impl AsFd, cache: Cache) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let control = open(CONTROL, flags, Mode::empty()).map_err(|error| {
            let kind = io::Error::from(error).kind();
            io::Error::new(kind, format!("{CONTROL} cannot be used: {error}"))
        })?;
        let (direct, sector_bytes) = match cache {
            Cache::Twice => (false, 0),
            Cache::Once { sector_bytes } => (true, sector_bytes),
        };
        for _ in 0..TRIES {
            let path = format!("/dev/loop{}", sys::free_loop(control.as_fd())?);
            let fd = open(&path, flags, Mode::empty())?;
            match sys::begin_loop(fd.as_fd(), file.as_fd(), direct, sector_bytes) {
                Ok(()) => return Ok(Self { fd, path }),
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::ResourceBusy, "no loop device stays free"))
    }

    /// Finds the device that this file has already. It is kept as long as the returned value lives.
    pub(crate) fn of_file(file: impl AsFd) -> io::Result<Option<Self>> {
        let stat = fstat(file)?;
        let wanted = (stat.st_dev, stat.st_ino);
        Ok(Self::all()?.find(|(file, _)| *file == wanted).map(|(_, device)| device))
    }

    /// Finds all devices that have files, with the device and inode numbers of these. Each is kept
    /// as long as the value lives.
    pub(crate) fn all() -> io::Result<impl Iterator<Item = ((u64, u64), Self)>> {
        Ok(std::fs::read_dir("/sys/block")?.filter_map(|block| {
            let block = block.ok()?;
            let name = block.file_name();
            let name = name.to_str().filter(|name| name.starts_with("loop"))?;
            // Only devices that have a file have this.
            if !block.path().join("loop").exists() {
                return None;
            }
            let path = format!("/dev/{name}");
            // A device of somebody else may be read-only, or vanish meanwhile. Passing over it does
            // not lead to a second device for the same file, because the file is locked.
            let fd = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
            // An open device keeps its file.
            let file = sys::loop_file(fd.as_fd()).ok()??;
            Some((file, Self { fd, path }))
        }))
    }

    /// Finds the device of this file, or sets one up, for a file that many instances use at once.
    /// There is never a second device for a file, which would destroy its content. `file` must have
    /// been opened only for this call.
    pub(crate) fn shared(file: &OwnedFd, cache: Cache) -> io::Result<Self> {
        let deadline = Instant::now() + SHARED_TIMEOUT;
        loop {
            if let Some(device) = Self::of_file(file)? {
                return Ok(device);
            }
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Self::attach(file, cache),
                // Somebody is just setting one up, or the last one to use it has just ended.
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    std::thread::sleep(SHARED_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Mounts the file system on the device, attached nowhere. All mounts of a device belong to one
    /// file system. Set-user-ID bits and device files on it have no effect.
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

    /// Makes the device notice that the file has grown.
    pub(crate) fn see_size(&self) -> io::Result<()> {
        Ok(sys::see_loop_size(self.fd.as_fd())?)
    }
}

/// Locks a file for the only user that it may have. Returns false if somebody else uses it. A
/// device that is attached to it keeps the lock as long as it exists.
pub(crate) fn lock_when_released(file: &OwnedFd) -> io::Result<bool> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(RELEASE_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}
