//! Where the files of a snapshot are: here, or at a store beside this machine.

use super::folder::names;
use crate::volumes::make_folder;
use files::Readers;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// What is noted of a snapshot; all else in its folder are its files. The last are notes that are
/// being written.
pub(super) const NOTES: [&str; 6] =
    ["about", "disks", "removed", REMOTE, "removed.new", "remote.new"];
const REMOTE: &str = "remote";
/// Files that are being fetched, until all are there.
const FETCHED: &str = ".fetched";

/// One that a remote store has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteCopy {
    /// By which it is found and checked.
    pub digest: String,
    /// Of the stream.
    pub size_bytes: u64,
}

/// ```text
///            offload            note written            removed here
///   Here ─────────────▶ Leaving ─────────────▶ Clearing ───────────▶ Remote
///    ▲                     │ failed, or needed                         │ fetch
///    ├─────────────────────┘                                           ▼
///    └────────────────────────────────────────────────────────────── Coming ──▶ Remote (failed)
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Here,
    /// Somebody copies it to the store, or removes an old copy there. It can be used.
    Leaving,
    /// The note says that the store has it; what is here is being removed.
    Clearing,
    Remote(RemoteCopy),
    /// It is being fetched. Until that has ended well, the store has it.
    Coming,
}

impl Place {
    /// As an earlier node left it. What it had not finished is undone or done.
    pub(super) fn found(notes: &Path, files: &Path) -> io::Result<Self> {
        clear_fetched(files)?;
        match read_note(notes)? {
            None => Ok(Self::Here),
            Some(copy) => {
                clear(files)?;
                Ok(Self::Remote(copy))
            }
        }
    }

    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here | Self::Leaving)
    }

    /// Whether the files of what it lies over are not needed for it.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Clearing | Self::Remote(_))
    }

    /// Whether nobody works on it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Here | Self::Remote(_))
    }

    /// What it takes of this machine's disk.
    pub(super) fn bytes_here(&self, size_bytes: u64) -> u64 {
        if matches!(self, Self::Remote(_)) { 0 } else { size_bytes }
    }
}

pub(super) fn read_note(folder: &Path) -> io::Result<Option<RemoteCopy>> {
    match std::fs::read(folder.join(REMOTE)) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Notes that a store has it. That is on the disk when this returns.
pub(super) fn write_note(folder: &Path, copy: &RemoteCopy) -> io::Result<()> {
    files::replace(&folder.join(REMOTE), Readers::Owner, &serde_json::to_vec(copy)?)
}

/// Notes that a store has it no more.
pub(super) fn remove_note(folder: &Path) -> io::Result<()> {
    let note = folder.join(REMOTE);
    files::remove(&note)?;
    files::sync_folder_of(&note)
}

/// Removes the files, and leaves the notes.
pub(super) fn clear(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for name in names(&open(folder)?).map_err(io::Error::other)? {
        if !is_note(&name) {
            remove(&folder.join(name))?;
        }
    }
    Ok(())
}

fn is_note(name: &OsStr) -> bool {
    NOTES.iter().any(|note| OsStr::new(note) == name)
}

/// An empty folder for what is fetched.
pub(super) fn make_fetched(folder: &Path) -> io::Result<PathBuf> {
    clear_fetched(folder)?;
    if !folder.exists() {
        make_folder(folder)?;
    }
    let fetched = folder.join(FETCHED);
    rustix::fs::mkdir(&fetched, Mode::from_raw_mode(0o700))?;
    Ok(fetched)
}

/// Gives all that was fetched its place. It is on the disk before that and after.
pub(super) fn place_fetched(folder: &Path) -> io::Result<()> {
    let fetched = folder.join(FETCHED);
    let top = open(&fetched)?;
    rustix::fs::syncfs(&top)?;
    for name in names(&top).map_err(io::Error::other)? {
        std::fs::rename(fetched.join(&name), folder.join(&name))?;
    }
    std::fs::remove_dir(&fetched)?;
    files::sync_folder_of(&fetched)
}

pub(super) fn clear_fetched(folder: &Path) -> io::Result<()> {
    remove(&folder.join(FETCHED))
}

/// Whatever it is, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let done = match std::fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

pub(super) fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}
