//! File systems of limited size that come and go with an instance: its writable layer, where that
//! is on disk, and empty folders.
//!
//! Each is a file system of its own in a file of the node's folder that never had a name, behind a
//! loop device that the kernel lets go of with the last mount. So there is nothing to clear away,
//! wherever the node is stopped: what holds the room is the instance. On the disk and not in
//! memory, because what is in memory counts against the instance's own; and not a folder with a
//! quota, because most machines have none.

use crate::disk;
use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, ftruncate, open, unlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use types::instance::{Medium, Scratch};

const MAKERS: [&str; 2] = ["/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4"];
const LOOPS: &str = "/dev/loop-control";
/// A loop device that was free may be somebody else's a moment later.
const TRIES: usize = 32;
/// How long making a file system may take; mostly it is some milliseconds.
const MKFS_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// Of what the program says when it fails.
const SAID_CHARS: usize = 300;
/// Whoever the programs of the image run as, the folder is for them.
const FOLDER: Mode = Mode::from_raw_mode(0o777);

#[derive(Debug)]
pub(crate) struct Scratches {
    folder: PathBuf,
}

impl Scratches {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("scratch");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    /// A file system that is attached nowhere yet, and belongs to the root of the instance.
    pub(crate) fn make(&self, scratch: &Scratch, root: u32) -> io::Result<OwnedFd> {
        let mount = match scratch.medium {
            Medium::Disk => self.make_file_system(scratch.size_mb, root)?,
            Medium::Memory => disk::make_memory_folder(scratch.size_mb, root)?,
        };
        if scratch.medium == Medium::Disk {
            chmodat(&mount, ".", FOLDER, AtFlags::empty())?;
        }
        if scratch.read_only {
            sys::make_read_only(mount.as_fd())?;
        }
        Ok(mount)
    }

    /// A writable layer, with these files in its `/etc`.
    pub(crate) fn make_layer(
        &self,
        size_mb: u32,
        root: u32,
        etc: &[(&str, String)],
    ) -> io::Result<OwnedFd> {
        let mount = self.make_file_system(size_mb, root)?;
        disk::fill(mount.as_fd(), root, etc)?;
        Ok(mount)
    }

    /// The file system in a file that stays, and whether it was made for that.
    pub(crate) fn open_kept(path: &Path, size_mb: u32) -> io::Result<(OwnedFd, bool)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        if let Ok(file) = open(path, flags, Mode::empty()) {
            let mounted = attach(&file).and_then(|(_device, at)| mount(&at));
            match mounted {
                Ok(mount) => return Ok((mount, false)),
                // Cut by a loss of power; what is in it can be had again.
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "a kept folder is made anew");
                    std::fs::remove_file(path)?;
                }
            }
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        let file = open(path, flags, Mode::from_raw_mode(0o600))?;
        Ok((Self::make_in(&file, size_mb, 0)?, true))
    }

    fn make_file_system(&self, size_mb: u32, root: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&self.folder, flags, Mode::from_raw_mode(0o600))?;
        Self::make_in(&file, size_mb, root)
    }

    fn make_in(file: &OwnedFd, size_mb: u32, root: u32) -> io::Result<OwnedFd> {
        ftruncate(file, u64::from(size_mb) << 20)?;
        lay_out(file, root)?;
        let (device, path) = attach(file)?;
        let mount = mount(&path)?;
        // The mount holds the device from here on.
        drop(device);
        unlinkat(&mount, "lost+found", AtFlags::REMOVEDIR)?;
        Ok(mount)
    }
}

/// Makes one that nobody uses.
pub(crate) fn try_out(root: u32) -> io::Result<String> {
    let scratches = Scratches { folder: std::env::temp_dir() };
    scratches.make(
        &Scratch { path: "/".to_owned(), size_mb: 1, read_only: true, medium: Medium::Disk },
        root,
    )?;
    Ok("can be made".to_owned())
}

/// Has the system's own program lay out a file system. Without a journal: nobody comes back to it.
fn lay_out(file: &OwnedFd, root: u32) -> io::Result<()> {
    let maker = MAKERS.into_iter().find(|path| Path::new(path).exists());
    let missing = || {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "folders of limited size need mkfs.ext4 (e2fsprogs)",
        )
    };
    let mut child = Command::new(maker.ok_or_else(missing)?)
        .args(["-q", "-F", "-m", "0", "-O", "^has_journal,^resize_inode", "-E"])
        .arg(format!("root_owner={root}:{root},lazy_itable_init=1,nodiscard"))
        // By this process, because a descriptor is not passed on.
        .arg(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    if poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&MKFS_TIMEOUT))? == 0 {
        child.kill()?;
    }
    let done = child.wait_with_output()?;
    if done.status.success() {
        return Ok(());
    }
    let said: String =
        String::from_utf8_lossy(&done.stderr).trim().chars().take(SAID_CHARS).collect();
    Err(io::Error::other(format!("mkfs.ext4 failed with {}, and said: {said}", done.status)))
}

/// Puts a loop device before a file. It is free again when nobody has it open or mounted.
fn attach(file: &OwnedFd) -> io::Result<(OwnedFd, String)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let control = open(LOOPS, flags, Mode::empty()).map_err(|error| {
        io::Error::new(io::Error::from(error).kind(), format!("{LOOPS} cannot be used: {error}"))
    })?;
    for _ in 0..TRIES {
        let path = format!("/dev/loop{}", sys::free_loop(control.as_fd())?);
        let device = open(&path, flags, Mode::empty())?;
        match sys::begin_loop(device.as_fd(), file.as_fd()) {
            Ok(()) => return Ok((device, path)),
            Err(Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "no loop device stays free"))
}

fn mount(device: &str) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), "source", device)?;
    fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}
