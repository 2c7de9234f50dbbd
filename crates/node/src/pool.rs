//! Where files are that get cloned: disks that stay, snapshots of them, versions of templates, and
//! the volumes made from those.
//!
//! A clone shares all blocks with its source until either is written to, so it costs the same
//! whatever is in it. Only some file systems can do that. If the one of the node's folder cannot,
//! the pool is one that can, kept in a file of that folder:
//!
//! ```text
//! pool      in the node's folder: a sparse file with an XFS, behind one loop device
//!   volumes/OWNER/NAME   like the same folder outside, which has the files that nobody clones
//!   images/OWNER/NAME    clones of disks, which make up the snapshots of that name
//! ```
//!
//! It is mounted, but the mount is attached nowhere, so a killed node leaves no mount behind.
//! Instances that live on keep the file system in use through their files; the next node then
//! mounts it again, through the same device. The pool is only made when it is first needed.

use crate::file_system::{self, Format};
use crate::loops::{Cache, Device};
use crate::sparse::BLOCK_BYTES;
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
use std::sync::atomic::{AtomicU32, Ordering};

const FILE: &str = "pool";
/// It is larger than its content by one part in this many, for its own records, and by at least
/// `RECORDS_MB`.
const RECORDS_PART: u64 = 16;
const RECORDS_MB: u64 = 1_024;
/// A little less than the largest file of an ext4.
const SIZE_MB_MAX: u64 = 15 << 20;
/// It grows by at least one part in this many, because an XFS that grows a little at each start
/// becomes fragmented.
const GROWTH_PART: u64 = 16;
const MIB: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Pool {
    folder: PathBuf,
    size_mb: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Nobody has needed it yet.
    Unknown,
    /// The file system of the node's folder can clone files itself.
    Folder,
    Mounted(OwnedFd),
    /// This machine has none, so files are copied.
    Missing,
}

/// Where files go that are to be cloned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Clones {
    /// In the node's folder, beside all others.
    Folder,
    /// In this folder, the root of the pool.
    Pool(PathBuf),
    /// Nowhere, because this machine cannot clone files.
    Missing,
}

impl Pool {
    /// Mounts the pool that an earlier node made. `contents_mb` is the most that may be stored in
    /// it.
    pub(crate) fn open(folder: &Path, contents_mb: u64) -> io::Result<Arc<Self>> {
        let size_mb = AtomicU32::new(size_mb(contents_mb));
        let (folder, state) = (folder.to_owned(), Mutex::new(State::Unknown));
        let pool = Self { folder, size_mb, state };
        if pool.file().exists() {
            *pool.state.lock() = State::Mounted(pool.mount()?);
        }
        Ok(Arc::new(pool))
    }

    /// Makes room for more content, also while it is in use.
    pub(crate) fn grow(&self, contents_mb: u64) -> io::Result<()> {
        let state = self.state.lock();
        let size_mb = size_mb(contents_mb);
        let grows = size_mb > self.size_mb.fetch_max(size_mb, Ordering::Relaxed);
        match &*state {
            // It grows whenever it is mounted, even if it is in use elsewhere.
            State::Mounted(_) if grows => self.mount().map(drop),
            _ => Ok(()),
        }
    }

    fn size_mb(&self) -> u64 {
        self.size_mb.load(Ordering::Relaxed).into()
    }

    /// Returns where cloned files go, and makes the pool if it is needed for the first time.
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

    /// Returns the folder that contains the cloned files, if there are any.
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

    /// Makes the file. It gets its name once it is complete.
    fn make(&self) -> io::Result<()> {
        let file = nameless(&self.folder)?;
        ftruncate(&file, self.size_mb() * MIB)?;
        file_system::lay_out_for_clones(&file)?;
        fsync(&file)?;
        name(&file, &self.file())
    }

    fn mount(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(self.file(), flags, Mode::empty())?;
        let size = fstat(&file)?.st_size.unsigned_abs() / MIB;
        let grows = self.size_mb() > size + size / GROWTH_PART;
        if grows {
            ftruncate(&file, self.size_mb() * MIB)?;
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

/// Returns the size of a pool for this much content.
fn size_mb(contents_mb: u64) -> u32 {
    let size_mb = contents_mb.saturating_add((contents_mb / RECORDS_PART).max(RECORDS_MB));
    crate::number::fit(size_mb.min(SIZE_MB_MAX))
}

fn root(mount: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()))
}

/// Returns the disk space that the pool's file takes, for a node in this folder.
pub(crate) fn allocated_bytes(folder: &Path) -> io::Result<u64> {
    match std::fs::symlink_metadata(folder.join(FILE)) {
        Ok(file) => Ok(file.blocks() * BLOCK_BYTES),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Tries whether the file system of a folder can clone files. Leaves nothing behind.
fn can_clone(folder: &Path) -> io::Result<bool> {
    let (one, other) = (nameless(folder)?, nameless(folder)?);
    // Some file systems can clone only empty files.
    rustix::io::write(&one, &[1; 4_096])?;
    match ioctl_ficlone(&other, &one) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Says how a node in this folder, which need not exist yet, would clone files.
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

/// Makes a file that is removed with its descriptor, unless it gets a name.
pub(crate) fn nameless(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::from_raw_mode(0o600))?)
}

/// Gives such a file, whose content is on disk, a name, which is on disk too when this returns.
pub(crate) fn name(file: &OwnedFd, path: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, from, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    files::sync_folder_of(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::statvfs;

    #[test]
    fn a_pool_grows_while_it_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let pool = Pool::open(folder.path(), 100).unwrap();
        // Elsewhere files are cloned in the folder itself, or not at all.
        let Clones::Pool(root) = pool.clones() else { return };
        let size_mb = || {
            let disk = statvfs(&root).unwrap();
            disk.f_blocks * disk.f_frsize / MIB
        };
        assert!(size_mb() < 100 + RECORDS_MB);
        pool.grow(5_000).unwrap();
        assert!(size_mb() > 5_000);
        pool.grow(100).unwrap();
        assert!(size_mb() > 5_000);
    }
}
