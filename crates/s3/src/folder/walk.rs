//! All keys in order, from any of them on, without holding more names than a page has.
//!
//! Keys are ordered by their bytes, so that of a folder counts with its slash: `a.b` comes before
//! `a/`. Of each folder the smallest names behind the position are kept while it is read once; when
//! they are used up it is read again from there.

use super::{Folder, is_absent, open_folder};
use crate::error::Error;
use crate::key::Key;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType};
use std::collections::BTreeSet;

/// Names of one folder that are kept at once.
const BATCH: usize = if cfg!(test) { 3 } else { 1000 };

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Position {
    Start,
    /// Behind this key.
    After(String),
    /// Behind all keys that begin so.
    Past(String),
    /// At the first key in the folder with this key, or behind.
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

    /// Whether a folder may have a key that is allowed.
    fn allows_below(&self, folder: &str) -> bool {
        match self {
            Self::Start => true,
            Self::After(at) | Self::From(at) => folder > at.as_str() || at.starts_with(folder),
            Self::Past(past) => self.allows(folder) || past.starts_with(folder) && past != folder,
        }
    }
}

/// What was found: the key alone. Whoever shows it looks it up ([`Folder::find`]).
pub(crate) struct Entry {
    pub(crate) key: Key,
}

/// What the one who is told of keys wants next.
pub(crate) enum Found {
    Next,
    /// Nothing more that begins so.
    Past(String),
    Stop,
}

/// One look at the keys that begin with a prefix.
pub(crate) struct Walk<'f> {
    folder: &'f Folder,
    prefix: String,
    pub(crate) position: Position,
    /// Folders that may still be looked into.
    folders_left: usize,
}

enum End {
    All,
    Stopped,
    /// The folders that may be looked into are used up; the position says where to go on.
    Tired,
}

impl<'f> Walk<'f> {
    pub(crate) fn new(
        folder: &'f Folder,
        prefix: &str,
        position: Position,
        folders_max: usize,
    ) -> Self {
        Self { folder, prefix: prefix.to_owned(), position, folders_left: folders_max }
    }

    /// Tells of keys in order until `found` stops it. Says whether there may be more.
    pub(crate) fn run(
        &mut self,
        found: &mut impl FnMut(Entry) -> Result<Found, Error>,
    ) -> Result<bool, Error> {
        // The folder that the prefix names whole holds all that begins with it.
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

    /// The key of a folder that is an object. Says whether to go on.
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
            for key in batch {
                // What the keys before led to may have passed it.
                let end = self.entry(&key, found)?;
                if !matches!(end, End::All) {
                    return Ok(end);
                }
                last = Some(key);
            }
            if whole {
                return Ok(End::All);
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

    /// The first keys in a folder that are allowed and lie behind `last`: of files, and of folders
    /// that may have such keys.
    fn batch(&self, path: &str, last: Option<&str>) -> Result<BTreeSet<String>, Error> {
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
            // A name that is no text cannot be said in XML.
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
        // Also keeps the hidden folder out, and what is too deep to have a key.
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
        // Some file systems do not say.
        FileType::Unknown => {
            let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some(FileType::from_raw_mode(stat.st_mode))
        }
        known => Some(known),
    }
}
