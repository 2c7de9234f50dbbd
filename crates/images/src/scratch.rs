//! The private work folder of one process that has the store open, such as the server or the
//! command line.
//!
//! ```text
//! lock                     held while a process enters, and during a collection
//! scratch/<name>/lock      held for the life of its process; released by the kernel when it ends
//! scratch/<name>/<number>  work in progress
//! ```
//!
//! What is stored but not named yet is known only to the process that stored it, so nothing is
//! collected while other processes have the store open.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::disk;
use crate::error::Error;

pub(crate) struct ScratchFolder {
    folder: PathBuf,
    count: AtomicU64,
    gate: PathBuf,
    /// The folder that contains the scratch folders of all processes.
    all: PathBuf,
    _lock: File,
}

/// Keeps other processes from opening the store until it is dropped.
pub(crate) struct Closed {
    _gate: File,
}

impl ScratchFolder {
    /// Creates a scratch folder, and removes those of processes that have ended.
    pub(crate) fn open(store: &Path) -> Result<Self, Error> {
        let (gate, all) = (store.join("lock"), store.join("scratch"));
        disk::make_folder(&all)?;
        let _gate = lock(&gate, FlockOperation::LockExclusive)?;
        for entry in entries(&all)? {
            if !is_in_use(&entry)? {
                remove(&entry)?;
            }
        }
        let folder = (0u64..)
            .map(|number| all.join(number.to_string()))
            .find(|folder| !folder.exists())
            .ok_or_else(|| Error::InUse(store.to_owned()))?;
        disk::make_folder(&folder)?;
        let own = lock(&folder.join("lock"), FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { folder, count: AtomicU64::new(0), gate, all, _lock: own })
    }

    /// Returns a path for work in progress that nobody else uses.
    pub(crate) fn next_path(&self) -> PathBuf {
        self.folder.join(format!("{}.part", self.count.fetch_add(1, Ordering::Relaxed)))
    }

    /// Keeps other processes out; fails if one has the store open.
    pub(crate) fn close(&self) -> Result<Closed, Error> {
        let _gate = lock(&self.gate, FlockOperation::LockExclusive)?;
        for other in entries(&self.all)?.iter().filter(|folder| **folder != self.folder) {
            if is_in_use(other)? {
                return Err(Error::InUse(other.clone()));
            }
        }
        Ok(Closed { _gate })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // If this fails, the next process that opens the store removes the folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    list().map_err(Error::io("list", folder))
}

/// Checks whether a process still uses a scratch folder. The caller must hold the gate, behind
/// which scratch folders are created and locked.
fn is_in_use(folder: &Path) -> Result<bool, Error> {
    let path = folder.join("lock");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(Error::io("open", &path)(error)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(Error::io("lock", &path)(error.into())),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    if path.is_dir() { disk::remove_tree(path) } else { disk::remove_file(path) }
}

fn lock(path: &Path, how: FlockOperation) -> Result<File, Error> {
    let file = File::create(path).map_err(Error::io("open", path))?;
    flock(&file, how).map_err(|error| Error::io("lock", path)(error.into()))?;
    Ok(file)
}
