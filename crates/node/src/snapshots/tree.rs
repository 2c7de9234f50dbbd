//! Copies what an instance wrote while it keeps writing: once while it runs, and then again what
//! has changed since, while it is frozen.
//!
//! The tree may be an attacker's. No link in it is followed: folders are opened below the root
//! without links, and everything else by a single name in an open folder. Nobody else has access to
//! the copy's folder.

use super::entry::{self, Ids};
use super::folder::{
    ENTRIES_MAX, changed_ns, copy_data, is_gone, kind, look, names, open_folder, remove,
};
use crate::error::SnapshotError;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, fstatvfs, linkat, mkdirat, openat,
    readlinkat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// The kernel's limit is 4,096: anything deeper has no path.
const PATH_BYTES_MAX: usize = 4_000;
/// The clock of files advances only every few milliseconds, so changes count as new from this much
/// before the beginning.
const CLOCK_STEP_NS: i128 = 100_000_000;
/// Extra room, because a file that changes while it is copied may be copied twice.
const BUDGET_BYTES: u64 = 16 << 20;
/// Random seeds, left out because two machines with the same seed would draw the same numbers.
pub(super) const SEEDS: [&str; 4] = [
    "var/lib/systemd/random-seed",
    "var/lib/urandom/random-seed",
    "var/lib/random-seed",
    "var/lib/misc/random-seed",
];

/// A tree that is being copied.
pub(super) struct Copy<'c> {
    source: &'c OwnedFd,
    into: &'c OwnedFd,
    ids: Ids,
    below: Option<&'c OwnedFd>,
    /// The disk space that each file of the copy is counted as besides its content.
    bytes_per_file: u64,
    /// How many bytes the first look may still copy. Otherwise a file that is moved ahead of it
    /// could be copied again and again.
    budget: u64,
    /// What the last look saw, with the inodes in the source.
    seen: HashMap<PathBuf, u64>,
    /// Files that somebody had open for writing when they were copied: a program that has one
    /// mapped can change it without leaving a trace.
    open: HashSet<u64>,
    /// The path in the copy of each file with several names.
    links: HashMap<u64, PathBuf>,
    /// What changed after this is copied again. In nanoseconds of the clock of files.
    since: i128,
    /// The times of folders, which are set last, because each file made in a folder changes them.
    times: Vec<(PathBuf, rustix::fs::Timestamps)>,
}

/// One entry of a folder while it is looked at.
struct Place<'p> {
    from: &'p OwnedFd,
    into: &'p OwnedFd,
    name: &'p OsStr,
    path: PathBuf,
    stat: Statx,
}

/// The size of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: u64,
}

impl<'c> Copy<'c> {
    /// Prepares to copy a folder into an empty one. `ids` maps the owners in the source. If the
    /// source is everything that the instance sees, `below` is what it started from, and what is
    /// the same there is not copied. The first look copies little more than `bytes_at_most`.
    pub(super) fn new(
        source: &'c OwnedFd,
        into: &'c OwnedFd,
        ids: Ids,
        below: Option<&'c OwnedFd>,
        bytes_at_most: u64,
    ) -> io::Result<Self> {
        // Taken from a file, because the program may have another clock.
        let since = changed_ns(&look(into, OsStr::new(""))?) - CLOCK_STEP_NS;
        Ok(Self {
            source,
            into,
            ids,
            below,
            bytes_per_file: entry::bytes_per_file(&fstatvfs(into)?),
            budget: bytes_at_most.saturating_mul(2).saturating_add(BUDGET_BYTES),
            seen: HashMap::new(),
            open: HashSet::new(),
            links: HashMap::new(),
            since,
            times: Vec::new(),
        })
    }

    /// Makes the copy equal to the source, except for changes made meanwhile. `first` means that
    /// nothing has been copied yet.
    pub(super) fn look(&mut self, first: bool) -> Result<(), SnapshotError> {
        let mut now = HashMap::new();
        self.links.clear();
        self.times.clear();
        let mut next = vec![PathBuf::new()];
        while let Some(folder) = next.pop() {
            self.look_into(&folder, first, &mut now, &mut next)?;
        }
        let before = std::mem::replace(&mut self.seen, now);
        self.remove_gone(before.into_keys())
    }

    fn look_into(
        &mut self,
        folder: &Path,
        first: bool,
        now: &mut HashMap<PathBuf, u64>,
        next: &mut Vec<PathBuf>,
    ) -> Result<(), SnapshotError> {
        let Some(from) = open_folder(self.source, folder)? else { return Ok(()) };
        let Some(into) = open_folder(self.into, folder)? else { return Ok(()) };
        let below = self.below.map(|below| open_folder(below, folder)).transpose()?.flatten();
        self.dress_folder(folder, &from, &into)?;
        let names = names(&from)?;
        for name in &names {
            let path = folder.join(name);
            if path.as_os_str().len() > PATH_BYTES_MAX {
                return Err(SnapshotError::TooDeep);
            }
            let stat = match look(&from, name) {
                Ok(stat) => stat,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(error.into()),
            };
            if now.len() >= ENTRIES_MAX {
                return Err(SnapshotError::TooMany { most: ENTRIES_MAX });
            }
            let place = Place { from: &from, into: &into, name, path, stat };
            if self.is_left_out(&place) || self.is_from_below(&place, below.as_ref())? {
                continue;
            }
            if kind(&place.stat) == FileType::Directory {
                next.push(place.path.clone());
            }
            self.take_over(&place, below.as_ref(), first)?;
            now.insert(place.path, stat.stx_ino);
        }
        match below {
            Some(below) => self.hide_removed(folder, &into, &names, &below, now),
            None => Ok(()),
        }
    }

    /// Returns true if the layers below already show the entry as it is.
    fn is_from_below(
        &self,
        place: &Place<'_>,
        below: Option<&OwnedFd>,
    ) -> Result<bool, SnapshotError> {
        let Some(below) = below else { return Ok(false) };
        match look(below, place.name) {
            Ok(lower) => Ok(kind(&lower) != FileType::Directory
                && changed_ns(&lower) == changed_ns(&place.stat)
                && entry::is_alike(&lower, &place.stat, self.ids)),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Hides what the layers below have and the instance no longer has.
    fn hide_removed(
        &self,
        folder: &Path,
        into: &OwnedFd,
        there: &[OsString],
        below: &OwnedFd,
        now: &mut HashMap<PathBuf, u64>,
    ) -> Result<(), SnapshotError> {
        let there: HashSet<_> = there.iter().collect();
        for name in names(below)?.iter().filter(|name| !there.contains(name)) {
            remove(into, name)?;
            entry::make_whiteout(into, name)?;
            now.insert(folder.join(name), 0);
        }
        Ok(())
    }

    /// Removes folders that do not differ from those below.
    fn remove_needless(&self, below: &OwnedFd) -> Result<(), SnapshotError> {
        // In reverse, so that folders come after those inside them.
        for (path, _) in self.times.iter().rev() {
            let (Some(name), above) = (path.file_name(), path.parent()) else { continue };
            let (Some(lower), Some(own)) =
                (open_folder(below, path)?, open_folder(self.into, path)?)
            else {
                continue;
            };
            let none = Ids { root: 0 };
            let (lower, stat) = (look(&lower, OsStr::new(""))?, look(&own, OsStr::new(""))?);
            let above = open_folder(self.into, above.unwrap_or(Path::new("")))?;
            if let Some(above) = above.filter(|_| entry::is_alike(&lower, &stat, none)) {
                match unlinkat(&above, name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOTEMPTY) => {}
                    Err(error) => return Err(io::Error::from(error).into()),
                }
            }
        }
        Ok(())
    }

    /// Sets the times of folders, and returns the size. Nothing may change afterwards.
    pub(super) fn finish(&mut self) -> Result<Size, SnapshotError> {
        if let Some(below) = self.below {
            self.remove_needless(below)?;
        }
        for (folder, times) in self.times.drain(..) {
            if let Some(folder) = open_folder(self.into, &folder)? {
                rustix::fs::futimens(folder, &times).map_err(io::Error::from)?;
            }
        }
        let mut size = Size::default();
        for path in self.seen.keys() {
            match look(self.into, path.as_os_str()) {
                Ok(stat) => size.bytes += entry::bytes_of(&stat, self.bytes_per_file),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(size)
    }

    fn is_left_out(&self, place: &Place<'_>) -> bool {
        let is_seed = SEEDS.iter().any(|seed| place.path == Path::new(seed));
        // Something else is mounted there, which does not belong to the layer.
        if place.stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
            return true;
        }
        match kind(&place.stat) {
            FileType::RegularFile => is_seed,
            FileType::Directory | FileType::Symlink | FileType::Fifo => false,
            FileType::CharacterDevice => !entry::is_whiteout(&place.stat),
            // Nobody listens on a socket of another instance.
            _ => true,
        }
    }

    fn dress_folder(
        &mut self,
        path: &Path,
        from: &OwnedFd,
        into: &OwnedFd,
    ) -> Result<(), SnapshotError> {
        let stat = look(from, OsStr::new(""))?;
        entry::dress(from, into, &stat, self.ids)?;
        self.times.push((path.to_owned(), entry::times(&stat)));
        Ok(())
    }

    fn take_over(
        &mut self,
        place: &Place<'_>,
        below: Option<&OwnedFd>,
        first: bool,
    ) -> Result<(), SnapshotError> {
        let Place { stat, path, .. } = place;
        let is_folder = kind(stat) == FileType::Directory;
        if first {
            // Folders that the layers below have too are only made for what may be inside, and removed
            // if nothing is. All of them together can be more than what was written.
            let is_shared = is_folder && has_folder(below, place.name)?;
            let wanted = if is_shared { 0 } else { entry::bytes_of(stat, self.bytes_per_file) };
            self.budget = self.budget.checked_sub(wanted).ok_or(SnapshotError::Restless)?;
        } else if self.is_unchanged(place)? {
            if stat.stx_nlink > 1 && !is_folder {
                self.links.entry(stat.stx_ino).or_insert_with(|| path.clone());
            }
            return Ok(());
        }
        remove(place.into, place.name)?;
        match kind(stat) {
            FileType::Directory => {
                mkdirat(place.into, place.name, Mode::from_raw_mode(0o700))
                    .map_err(io::Error::from)?;
                return Ok(());
            }
            _ if stat.stx_nlink > 1 && self.link(place)? => return Ok(()),
            _ => {}
        }
        match self.copy(place) {
            // It was removed while being copied; the next look sees what is there instead.
            Err(SnapshotError::Machine(error)) if first && is_gone(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                if stat.stx_nlink > 1 {
                    self.links.insert(stat.stx_ino, path.clone());
                }
                Ok(())
            }
        }
    }

    /// Adds a name to a file that was copied already, if it was.
    fn link(&self, place: &Place<'_>) -> io::Result<bool> {
        let Some(other) = self.links.get(&place.stat.stx_ino) else { return Ok(false) };
        let (Some(name), above) = (other.file_name(), other.parent()) else { return Ok(false) };
        // Not by its path, because a folder in that may have become a link by now.
        let Some(folder) = open_folder(self.into, above.unwrap_or(Path::new("")))? else {
            return Ok(false);
        };
        match linkat(&folder, name, place.into, place.name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns true if the copy of an entry is up to date. A folder is if it exists as one, because
    /// its entries are looked at anyway.
    fn is_unchanged(&self, place: &Place<'_>) -> Result<bool, SnapshotError> {
        let copied = match look(place.into, place.name) {
            Ok(copied) => copied,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if kind(&copied) != kind(&place.stat) {
            return Ok(false);
        }
        let same = self.seen.get(&place.path) == Some(&place.stat.stx_ino);
        let is_folder = kind(&copied) == FileType::Directory;
        // An overlay of everything does not tell who has a file mapped.
        let tells = self.below.is_none() || kind(&copied) != FileType::RegularFile;
        Ok(is_folder
            || same
                && tells
                && changed_ns(&place.stat) < self.since
                && !self.open.contains(&place.stat.stx_ino))
    }

    fn copy(&mut self, place: &Place<'_>) -> Result<(), SnapshotError> {
        let Place { into, name, stat, .. } = place;
        match kind(stat) {
            FileType::RegularFile => return self.copy_file(place),
            FileType::Symlink => {
                let target = match readlinkat(place.from, *name, Vec::new()) {
                    // It is no link any more.
                    Err(Errno::INVAL) => return Err(io::Error::from(Errno::NOENT).into()),
                    target => target.map_err(io::Error::from)?,
                };
                symlinkat(target, into, *name).map_err(io::Error::from)?;
            }
            _ => entry::make_node(into, name, stat)?,
        }
        Ok(entry::dress_name(into, name, stat, self.ids)?)
    }

    fn copy_file(&mut self, place: &Place<'_>) -> Result<(), SnapshotError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = openat(place.from, place.name, flags, Mode::empty()).map_err(io::Error::from)?;
        let stat = look(&from, OsStr::new(""))?;
        if kind(&stat) != FileType::RegularFile {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        }
        if sys::may_be_written(from.as_fd()) {
            self.open.insert(stat.stx_ino);
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let into = openat(place.into, place.name, flags, Mode::from_raw_mode(0o600))
            .map_err(io::Error::from)?;
        copy_data(&from, &into, stat.stx_size)?;
        entry::dress(&from, &into, &stat, self.ids)?;
        Ok(rustix::fs::futimens(&into, &entry::times(&stat)).map_err(io::Error::from)?)
    }

    /// Removes what was copied but is no longer in the source.
    fn remove_gone(&self, before: impl Iterator<Item = PathBuf>) -> Result<(), SnapshotError> {
        for path in before.filter(|path| !self.seen.contains_key(path)) {
            let (Some(name), above) = (path.file_name(), path.parent()) else { continue };
            // It may have gone with its folder.
            let Some(folder) = open_folder(self.into, above.unwrap_or(Path::new("")))? else {
                continue;
            };
            remove(&folder, name)?;
        }
        Ok(())
    }
}

/// Checks whether a folder of the layers below has a folder of this name.
fn has_folder(below: Option<&OwnedFd>, name: &OsStr) -> io::Result<bool> {
    match below.map(|below| look(below, name)) {
        Some(Ok(lower)) => Ok(kind(&lower) == FileType::Directory),
        Some(Err(error)) if !is_gone(&error) => Err(error),
        Some(Err(_)) | None => Ok(false),
    }
}

#[cfg(test)]
mod tests;
