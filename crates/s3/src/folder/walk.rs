//! Visits all keys in order, from any position on, without holding more names than a page has.
//!
//! Keys are ordered by their bytes, and the key of a folder includes its slash: `a.b` comes before
//! `a/`. A folder is read once to keep the smallest names after the position; when these are used
//! up, it is read again from there. How often that happens is limited: a list that shows a thousand
//! keys as one prefix would read the folder again for each prefix.

use super::{Folder, is_absent, open_folder};
use crate::error::Error;
use crate::key::Key;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType};
use std::collections::BTreeSet;

/// How many names of a folder are kept at once.
const BATCH: usize = if cfg!(test) { 3 } else { 1000 };

/// Where a list continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Position {
    Start,
    /// After this key.
    After(String),
    /// After all keys with this prefix.
    Past(String),
    /// At this folder's key, or at the first key after it.
    From(String),
}

impl Position {
    fn allows(&self, key: &str) -> bool {
        match self {
            Self::Start => true,
            Self::After(after) => key > after.as_str(),
            Self::Past(past) => key > past.as_str() && !key.starts_with(past.as_str()),
            Self::From(from) => key >= from.as_str(),
        }
    }

    /// Returns whether a folder may contain an allowed key.
    fn allows_below(&self, folder: &str) -> bool {
        match self {
            Self::Start => true,
            Self::After(at) | Self::From(at) => folder > at.as_str() || at.starts_with(folder),
            Self::Past(past) => self.allows(folder) || past.starts_with(folder) && past != folder,
        }
    }
}

/// A key that was found. To show it, look it up ([`Folder::find`]).
pub(crate) struct Entry {
    pub(crate) key: Key,
}

/// What the callback wants next.
pub(crate) enum Found {
    Next,
    /// Skip all other keys with this prefix.
    Past(String),
    Stop,
}

/// One walk over the keys with a prefix.
pub(crate) struct Walk<'f> {
    folder: &'f Folder,
    prefix: String,
    pub(crate) position: Position,
    /// How many folders may still be read, and how many names before none is read again.
    folders_left: usize,
    names_left: usize,
}

enum End {
    All,
    Stopped,
    /// No more may be read. The position says where to continue.
    Tired,
}

impl<'f> Walk<'f> {
    pub(crate) fn new(
        folder: &'f Folder,
        prefix: &str,
        position: Position,
        (folders_left, names_left): (usize, usize),
    ) -> Self {
        Self { folder, prefix: prefix.to_owned(), position, folders_left, names_left }
    }

    /// Passes keys to `found` in order until it stops. Returns whether there may be more.
    pub(crate) fn run(
        &mut self,
        found: &mut impl FnMut(Entry) -> Result<Found, Error>,
    ) -> Result<bool, Error> {
        // The innermost folder that the prefix names completely contains all keys with the prefix.
        let start = self.prefix.rfind('/').map_or(String::new(), |end| self.prefix[..=end].into());
        if !start.is_empty() && Key::new(&start).is_err() {
            return Ok(false);
        }
        // The folder itself may be an object.
        if !start.is_empty() && start == self.prefix && !self.own(&start, found)? {
            return Ok(true);
        }
        let end = self.folder(&start, found)?;
        Ok(!matches!(end, End::All))
    }

    /// Visits the key of a folder, if it is an object. Returns whether to go on.
    fn own(
        &mut self,
        key: &str,
        found: &mut impl FnMut(Entry) -> Result<Found, Error>,
    ) -> Result<bool, Error> {
        let Ok(key) = Key::new(key) else { return Ok(true) };
        if !self.position.allows(key.as_str()) || self.folder.find(&key)?.is_none() {
            return Ok(true);
        }
        self.tell(key, found)
    }

    fn tell(
        &mut self,
        key: Key,
        found: &mut impl FnMut(Entry) -> Result<Found, Error>,
    ) -> Result<bool, Error> {
        let text = key.as_str().to_owned();
        match found(Entry { key })? {
            Found::Next => self.position = Position::After(text),
            Found::Past(prefix) => self.position = Position::Past(prefix),
            Found::Stop => return Ok(false),
        }
        Ok(true)
    }

    fn folder(
        &mut self,
        path: &str,
        found: &mut impl FnMut(Entry) -> Result<Found, Error>,
    ) -> Result<End, Error> {
        if self.folders_left == 0 {
            if self.position.allows(path) {
                self.position = Position::From(path.to_owned());
            }
            return Ok(End::Tired);
        }
        self.folders_left -= 1;
        let mut last = None::<String>;
        loop {
            let batch = self.batch(path, last.as_deref())?;
            let whole = batch.len() < BATCH;
            let tired = !whole && self.names_left == 0;
            for (number, key) in batch.into_iter().enumerate() {
                if tired && number + 1 == BATCH {
                    // A folder here may have no keys, and then no position would follow it. So it
                    // comes first on the next page.
                    self.folders_left = 0;
                }
                // The position may already be past this key because of the keys before it.
                let end = self.entry(&key, found)?;
                if !matches!(end, End::All) {
                    return Ok(end);
                }
                last = Some(key);
            }
            if whole {
                return Ok(End::All);
            }
            if tired {
                return Ok(End::Tired);
            }
        }
    }

    fn entry(
        &mut self,
        key: &str,
        found: &mut impl FnMut(Entry) -> Result<Found, Error>,
    ) -> Result<End, Error> {
        if key.ends_with('/') {
            if !self.position.allows_below(key) {
                return Ok(End::All);
            }
            if key.starts_with(&self.prefix) && !self.own(key, found)? {
                return Ok(End::Stopped);
            }
            if !self.position.allows_below(key) {
                return Ok(End::All);
            }
            return self.folder(key, found);
        }
        if !self.position.allows(key) {
            return Ok(End::All);
        }
        let Ok(key) = Key::new(key) else { return Ok(End::All) };
        Ok(if self.tell(key, found)? { End::All } else { End::Stopped })
    }

    /// Returns the first allowed keys in a folder after `last`, including folders that may contain
    /// allowed keys.
    fn batch(&mut self, path: &str, last: Option<&str>) -> Result<BTreeSet<String>, Error> {
        let mut kept = BTreeSet::new();
        let opened = open_folder(&*self.folder.files, path.strip_suffix('/').unwrap_or(path));
        let folder = match opened {
            Ok(folder) => folder,
            Err(errno) if is_absent(errno) => return Ok(kept),
            Err(errno) => return Err(errno.into()),
        };
        let mut names = Dir::read_from(&folder)?;
        while let Some(entry) = names.read() {
            let entry = entry?;
            self.names_left = self.names_left.saturating_sub(1);
            // A name that is not UTF-8 cannot be expressed in XML.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let mut key = format!("{path}{name}");
            match file_type(&folder, name, entry.file_type()) {
                Some(FileType::RegularFile) => {}
                Some(FileType::Directory) => key.push('/'),
                _ => continue,
            }
            if self.fits(&key) && last.is_none_or(|last| key.as_str() > last) {
                kept.insert(key);
                if kept.len() > BATCH {
                    kept.pop_last();
                }
            }
        }
        Ok(kept)
    }

    fn fits(&self, key: &str) -> bool {
        // Also excludes the hidden folder, and anything too deep to have a key.
        if Key::new(key).is_err() {
            return false;
        }
        if key.ends_with('/') {
            let below = key.starts_with(&self.prefix) || self.prefix.starts_with(key);
            return below && self.position.allows_below(key);
        }
        key.starts_with(&self.prefix) && self.position.allows(key)
    }
}

fn file_type(folder: &OwnedFd, name: &str, known: FileType) -> Option<FileType> {
    match known {
        // Some file systems do not report the type.
        FileType::Unknown => {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(FileType::from_raw_mode(stat.st_mode))
        }
        known => Some(known),
    }
}
