//! File systems of limited size that come and go with an instance: its writable layer, if that is
//! on disk, and empty folders.
//!
//! Each is a file system of its own, in a nameless file in the node's folder, behind a loop device
//! that the kernel releases with the last mount. So there is nothing to clean up, wherever the node
//! is stopped: only the instance keeps the space in use. They are on disk because memory would
//! count as the instance's own, and they are not folders with a quota because most machines do not
//! have quotas.

use crate::disk;
use crate::file_system::{Format, lay_out_for_once};
use crate::loops::{Cache, Device, lock_when_released};
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, chmodat, ftruncate, open, unlinkat};
use rustix::io::Errno;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use types::instance::{Medium, Scratch};

/// The folder must be usable for whatever user the image's programs run as.
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

    /// Makes a file system that is attached nowhere yet and belongs to the instance's root.
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

    /// Makes a writable layer, with these files in its `/etc`.
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

    /// Mounts the file system in a file that is kept. Also returns whether the file was just made.
    pub(crate) fn open_kept(path: &Path, size_mb: u32) -> io::Result<(OwnedFd, bool)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match open(path, flags, Mode::empty()) {
            Ok(file) => match mount_kept(&file) {
                // Damaged by a power cut. Its content can be made again.
                Err(error) if is_damage(&error) => {
                    tracing::warn!(%error, path = %path.display(), "a kept folder is made anew");
                    std::fs::remove_file(path)?;
                }
                mounted => return Ok((mounted?, false)),
            },
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL;
        let file = open(path, flags, Mode::from_raw_mode(0o600))?;
        let made = lock_kept(&file).and_then(|()| Self::make_in(&file, size_mb, 0));
        if made.is_err() {
            // Half of one would be taken for a damaged one.
            std::fs::remove_file(path)?;
        }
        Ok((made?, true))
    }

    fn make_file_system(&self, size_mb: u32, root: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = open(&self.folder, flags, Mode::from_raw_mode(0o600))?;
        Self::make_in(&file, size_mb, root)
    }

    fn make_in(file: &OwnedFd, size_mb: u32, root: u32) -> io::Result<OwnedFd> {
        ftruncate(file, u64::from(size_mb) << 20)?;
        lay_out_for_once(file, root)?;
        // From here on the mount keeps the device.
        let mount = mount(&Device::attach(file, Cache::Twice)?)?;
        unlinkat(&mount, "lost+found", AtFlags::REMOVEDIR)?;
        Ok(mount)
    }
}

/// Locks the file of a kept folder. The lock lasts as long as its mounts: the kernel may still be
/// unmounting it after the last instance that had it, and must not write to it behind the back of
/// the next.
fn lock_kept(file: &OwnedFd) -> io::Result<()> {
    let in_use = || io::Error::new(io::ErrorKind::ResourceBusy, "the folder is still in use");
    if lock_when_released(file)? { Ok(()) } else { Err(in_use()) }
}

fn mount_kept(file: &OwnedFd) -> io::Result<OwnedFd> {
    lock_kept(file)?;
    Format::read(file)?;
    mount(&Device::attach(file, Cache::Twice)?)
}

/// Returns true if an error says that a file system is damaged. Any other, for example that there
/// is no loop device left, says nothing about its content.
fn is_damage(error: &io::Error) -> bool {
    const SAID: [Errno; 3] = [Errno::INVAL, Errno::UCLEAN, Errno::BADMSG];
    let no_file_system = error.kind() == io::ErrorKind::InvalidData;
    no_file_system || Errno::from_io_error(error).is_some_and(|errno| SAID.contains(&errno))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_folder_is_made_anew_only_if_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let (mount, is_new) = Scratches::open_kept(&path, 8).unwrap();
        assert!(is_new);
        rustix::fs::mkdirat(&mount, "content", FOLDER).unwrap();

        // As long as it is in use, it gets no second device, and is not damaged either.
        let busy = Scratches::open_kept(&path, 8).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy, "{busy}");
        drop(mount);
        let (mount, is_new) = Scratches::open_kept(&path, 8).unwrap();
        assert!(!is_new && rustix::fs::statat(&mount, "content", AtFlags::empty()).is_ok());
        drop(mount);

        for damage in [&b""[..], &[0xEE; 64 << 10]] {
            std::fs::write(&path, damage).unwrap();
            let (mount, is_new) = Scratches::open_kept(&path, 8).unwrap();
            assert!(is_new && rustix::fs::statat(&mount, "content", AtFlags::empty()).is_err());
        }
    }

    #[test]
    fn a_machine_without_loop_devices_says_nothing_about_what_is_kept() {
        for error in [Errno::NOSPC, Errno::BUSY, Errno::NOMEM, Errno::MFILE, Errno::PERM, Errno::IO]
        {
            assert!(!is_damage(&error.into()), "{error}");
        }
        let none_free = io::Error::new(io::ErrorKind::ResourceBusy, "no loop device stays free");
        assert!(!is_damage(&none_free));
        assert!(is_damage(&Errno::UCLEAN.into()));
    }
}
