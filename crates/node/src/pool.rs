//! Where files are that are cloned: disks that stay, snapshots of them, versions of templates and the
//! volumes made from these.
//!
//! A clone has the same blocks as its source until either is written to, so it costs the same
//! whatever is in it. Only some file systems can do that. Where the one of the node's folder cannot,
//! one that can is kept in a file of it:
//!
//! ```text
//! pool      in the node's folder: a sparse file with an XFS, behind one loop device
//!   volumes/OWNER/NAME   as in the node's folder, where those are that nobody clones
//!   images/OWNER/NAME    clones of disks, of which the snapshots of that name are made
//! ```
//!
//! It is mounted, and the mount attached nowhere, so a killed node leaves none behind. Instances that
//! live on hold the file system through the files that they use; the next node then mounts it
//! again, through the same device. All of it is made when it is needed first.

use crate::file_system::{self, Format};
use crate::loops::{Cache, Device};
use parking_lot::Mutex;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, fstat, fsync, ftruncate, ioctl_ficlone, linkat, open,
};
use rustix::io::Errno;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FILE: &str = "pool";
/// Of what may be in it, it has one part more for its own records, and this at least.
const RECORDS_PART: u64 = 16;
const RECORDS_MB: u64 = 1_024;
/// The largest file of an ext4, less a little.
const SIZE_MB_MAX: u64 = 15 << 20;
/// It grows by one of so many parts at least: an XFS that grows a little at each start is in pieces.
const GROWTH_PART: u64 = 16;
const MIB: u64 = 1 << 20;
/// In which the kernel counts what a file has on the disk.
const BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
pub(crate) struct Pool {
    folder: PathBuf,
    size_mb: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nobody has needed it yet.
    Unknown,
    /// The file system of the node's folder clones files itself.
    Folder,
    Mounted(OwnedFd),
    /// This machine has none: files are copied.
    Missing,
}

/// Where files go that are to be cloned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clones {
    /// In the node's folder, beside all others.
    Folder,
    /// In this one.
    Pool(PathBuf),
    /// Nowhere.
    Missing,
}

impl Pool {
    /// Mounts the one that an earlier node made. `contents_mb` is what may be in it.
    pub(crate) fn open(folder: &Path, contents_mb: u64) -> io::Result<Arc<Self>> {
        let size_mb = contents_mb.saturating_add((contents_mb / RECORDS_PART).max(RECORDS_MB));
        let size_mb = crate::number::fit(size_mb.min(SIZE_MB_MAX));
        let (folder, state) = (folder.to_owned(), Mutex::new(State::Unknown));
        let pool = Self { folder, size_mb, state };
        if pool.file().exists() {
            *pool.state.lock() = State::Mounted(pool.mount()?);
        }
        Ok(Arc::new(pool))
    }

    /// Makes it, if nobody has needed it before.
    pub(crate) fn clones(&self) -> Clones {
        let mut state = self.state.lock();
        if matches!(*state, State::Unknown) {
            *state = self.find_out();
        }
        match &*state {
            State::Folder => Clones::Folder,
            State::Mounted(mount) => Clones::Pool(root(mount)),
            State::Unknown | State::Missing => Clones::Missing,
        }
    }

    /// The topmost folder of those in which files are that were cloned, if there are any.
    pub(crate) fn root(&self) -> PathBuf {
        match &*self.state.lock() {
            State::Mounted(mount) => root(mount),
            State::Unknown | State::Folder | State::Missing => self.folder.clone(),
        }
    }

    fn find_out(&self) -> State {
        match can_clone(&self.folder) {
            Ok(true) => return State::Folder,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "it cannot be seen whether the disk clones files");
            }
        }
        match self.make().and_then(|()| self.mount()) {
            Ok(mount) => State::Mounted(mount),
            Err(error) => {
                tracing::warn!(%error, "there is no file system that clones files: snapshots and volumes of templates are copied");
                State::Missing
            }
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// It gets its name when it is whole.
    fn make(&self) -> io::Result<()> {
        let file = nameless(&self.folder)?;
        ftruncate(&file, u64::from(self.size_mb) * MIB)?;
        file_system::lay_out_for_clones(&file)?;
        fsync(&file)?;
        name(&file, &self.file())
    }

    fn mount(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(self.file(), flags, Mode::empty())?;
        let size = fstat(&file)?.st_size.unsigned_abs() / MIB;
        let grows = u64::from(self.size_mb) > size + size / GROWTH_PART;
        if grows {
            ftruncate(&file, u64::from(self.size_mb) * MIB)?;
            fsync(&file)?;
        }
        let sector_bytes = Format::Xfs.sector_bytes(&file)?;
        let device = Device::shared(&file, Cache::Once { sector_bytes })?;
        device.see_size()?;
        let mount = device.mount(Format::Xfs.name(), Format::Xfs.options())?;
        let size_mb = crate::number::fit(fstat(&file)?.st_size.unsigned_abs() / MIB);
        if Format::Xfs.is_short(mount.as_fd(), size_mb)? {
            Format::Xfs.grow(mount.as_fd(), size_mb)?;
        }
        Ok(mount)
    }
}

fn root(mount: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()))
}

/// What the file of a node in this folder has of the machine's disk.
pub(crate) fn allocated_bytes(folder: &Path) -> io::Result<u64> {
    match std::fs::symlink_metadata(folder.join(FILE)) {
        Ok(file) => Ok(file.blocks() * BLOCK_BYTES),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Whether the file system of a folder does it. Leaves nothing behind.
fn can_clone(folder: &Path) -> io::Result<bool> {
    let (one, other) = (nameless(folder)?, nameless(folder)?);
    // What is empty can be cloned anywhere on some.
    rustix::io::write(&one, &[1; 4_096])?;
    match ioctl_ficlone(&other, &one) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What a machine would do for a node in this folder, which need not be there yet.
pub(crate) fn outlook(folder: &Path) -> io::Result<String> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    if can_clone(existing)? {
        return Ok("the disk of the data folder clones files".to_owned());
    }
    match file_system::find("mkfs.xfs") {
        Some(_) => Ok("by an XFS in a file of the data folder".to_owned()),
        None => Err(io::Error::other(
            "the disk of the data folder does not clone files, and the package xfsprogs is not installed",
        )),
    }
}

/// A file in a folder, to be read and written, that is gone with its descriptor if it gets no name.
pub(crate) fn nameless(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::from_raw_mode(0o600))?)
}

/// Gives such a file, whose content is on the disk, a name, which is there too when this returns.
pub(crate) fn name(file: &OwnedFd, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    files::sync_folder_of(path)
}
