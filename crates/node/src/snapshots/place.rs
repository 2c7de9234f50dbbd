//! Where the files of a snapshot are: here, or in a remote store.

use super::folder::names;
use super::paths::GONE;
use crate::remote_store::RemoteCopy;
use crate::volumes::make_folder;
use files::Readers;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The notes about a snapshot. Everything else in its folder are its files. The last two are notes
/// that are being written.
pub(super) const NOTES: [&str; 6] =
    ["about", "disks", "removed", REMOTE, "removed.new", "remote.new"];
const REMOTE: &str = "remote";
/// Contains files that are being fetched, until all are there.
const FETCHED: &str = ".fetched";

/// Where the files of a snapshot are.
///
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
    /// It is being copied to the store, or an old copy there is being removed. It can be used.
    Leaving,
    /// The note says that the store has it, and the files here are being removed.
    Clearing,
    Remote(RemoteCopy),
    /// It is being fetched. Until that succeeds, the store has it.
    Coming,
}

impl Place {
    /// Returns where an earlier node left the files, and undoes or completes what it had not
    /// finished. What is to be removed for that is added to `leftovers`.
    pub(super) fn found(
        notes: &Path,
        files: &Path,
        leftovers: &mut Vec<PathBuf>,
    ) -> io::Result<Self> {
        move_away(&files.join(FETCHED), notes, leftovers)?;
        match read_note(notes)? {
            None => Ok(Self::Here),
            Some(copy) => {
                for path in stored(files)? {
                    move_away(&path, notes, leftovers)?;
                }
                Ok(Self::Remote(copy))
            }
        }
    }

    pub(super) fn is_here(&self) -> bool {
        matches!(self, Self::Here | Self::Leaving)
    }

    /// Returns true if the files of the snapshots below it are not needed for it.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Clearing | Self::Remote(_))
    }

    /// Returns true if nobody is moving it.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Here | Self::Remote(_))
    }

    /// Returns how much of this machine's disk it takes.
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

/// Records that a store has it. The note is on disk when this returns.
pub(super) fn write_note(folder: &Path, copy: &RemoteCopy) -> io::Result<()> {
    files::replace(&folder.join(REMOTE), Readers::Owner, &serde_json::to_vec(copy)?)
}

/// Records that a store no longer has it.
pub(super) fn remove_note(folder: &Path) -> io::Result<()> {
    let note = folder.join(REMOTE);
    files::remove(&note)?;
    files::sync_folder_of(&note)
}

/// Removes the files, and leaves the notes.
pub(super) fn clear(folder: &Path) -> io::Result<()> {
    stored(folder)?.iter().try_for_each(|path| remove(path))
}

/// Lists what is in the folder of a snapshot besides the notes.
fn stored(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let names = names(&open(folder)?).map_err(io::Error::other)?;
    Ok(names.into_iter().filter(|name| !is_note(name)).map(|name| folder.join(name)).collect())
}

/// Moves an entry, if it exists, to beside the notes of its snapshot, under a name that no snapshot
/// has, and adds it to `leftovers`. Removing it may take long.
pub(super) fn move_away(
    entry: &Path,
    notes: &Path,
    leftovers: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let gone = notes.with_file_name(format!("{GONE}{}-{}", name(notes), name(entry)));
    match std::fs::rename(entry, &gone) {
        Ok(()) => leftovers.push(gone),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        // In the pool, which is another file system, it is a single file.
        Err(_) => remove(entry)?,
    }
    Ok(())
}

fn is_note(name: &OsStr) -> bool {
    NOTES.iter().any(|note| OsStr::new(note) == name)
}

/// Makes an empty folder for what is fetched.
pub(super) fn make_fetched(folder: &Path) -> io::Result<PathBuf> {
    clear_fetched(folder)?;
    if !folder.exists() {
        make_folder(folder)?;
    }
    let fetched = folder.join(FETCHED);
    rustix::fs::mkdir(&fetched, Mode::from_raw_mode(0o700))?;
    Ok(fetched)
}

/// Moves everything that was fetched into its place. It is on disk before that and after.
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

/// Removes an entry of any kind, if it exists.
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
