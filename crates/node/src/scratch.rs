//! File systems of limited size that come and go with an instance: its writable layer, where that
//! is on disk, and empty folders.
//!
//! Each is a file system of its own in a file of the node's folder that never had a name, behind a
//! loop device that the kernel lets go of with the last mount. So there is nothing to clear away,
//! wherever the node is stopped: what holds the room is the instance. On the disk and not in
//! memory, because what is in memory counts against the instance's own; and not a folder with a
//! quota, because most machines have none.

use crate::disk;
use crate::file_system::lay_out_for_once;
use crate::loops::{Cache, Device};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, ftruncate, open, unlinkat};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use types::instance::{Medium, Scratch};

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
            let mounted = Device::attach(&file, Cache::Twice).and_then(|device| mount(&device));
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
        lay_out_for_once(file, root)?;
        // The mount holds the device from here on.
        let mount = mount(&Device::attach(file, Cache::Twice)?)?;
        unlinkat(&mount, "lost+found", AtFlags::REMOVEDIR)?;
        Ok(mount)
    }
}

fn mount(device: &Device) -> io::Result<OwnedFd> {
    device.mount("ext4", &[])
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
