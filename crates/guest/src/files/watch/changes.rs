//! Follows a directory with inotify, or a tree with one watch for each of its directories.
//!
//! A new directory is first watched and then listed, and its entries are announced as created,
//! because they may have been there before the watch began. Entries that came later also have
//! events in the queue, so announced paths are remembered until the queue is empty, and their own
//! events are skipped.

use super::line::{Lines, Op};
use crate::files::draft;
use crate::files::entry;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DIRECTORIES_MAX: usize = 100_000;
const ANNOUNCED_MAX: usize = 100_000;
const READ_BYTES: usize = 32 << 10;
/// Lines are sent when they exceed this size, and when the queue is empty.
const BATCH_BYTES: usize = 64 << 10;

/// Why a watch has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error("the reader has gone")]
    Reader,
    #[error("the watched directory has gone")]
    Directory,
    #[error("the kernel gave no more events")]
    Kernel(#[from] Errno),
}

type Send<'a> = &'a mut dyn FnMut(Vec<u8>) -> Result<(), Ended>;

pub(crate) struct Changes {
    inotify: OwnedFd,
    root: PathBuf,
    recursive: bool,
    directories: HashMap<i32, PathBuf>,
    announced: HashSet<PathBuf>,
    blind: Blind,
    /// The draft that was renamed last, and what its new name means.
    renamed_draft: Option<(u32, Renamed)>,
    lines: Lines,
}

/// Whether some directory could not be watched. This is reported once, because it may concern very
/// many.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blind {
    No,
    Told,
}

#[derive(Clone, Copy)]
enum Renamed {
    New,
    Replacing,
}

/// An event, copied out of the buffer that it was read into.
struct Event {
    watch: i32,
    flags: ReadFlags,
    cookie: u32,
    name: Option<Vec<u8>>,
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Changes {
    pub(crate) fn begin(root: PathBuf, recursive: bool, ignored: Vec<String>) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut changes = Self {
            inotify,
            root,
            recursive,
            directories: HashMap::new(),
            blind: Blind::No,
            announced: HashSet::new(),
            renamed_draft: None,
            lines: Lines::new(ignored),
        };
        changes.watch_all()?;
        Ok(changes)
    }

    /// Watches the root and everything below it, discarding earlier watches.
    fn watch_all(&mut self) -> Result<(), Errno> {
        self.directories.clear();
        self.blind = Blind::No;
        let watch = inotify::add_watch(&self.inotify, &self.root, wanted())?;
        self.directories.insert(watch, self.root.clone());
        self.add_below(self.root.clone(), &mut |_, _| Ok(()))
    }

    /// Returns what has to be sent before the first event.
    pub(crate) fn pending(&mut self) -> Vec<u8> {
        self.lines.take()
    }

    /// Reads all available events and sends their lines.
    pub(crate) fn read(&mut self, send: Send<'_>) -> Result<(), Ended> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        loop {
            let events = self.next_events(&mut buffer)?;
            if events.is_empty() {
                self.announced.clear();
                return send(self.lines.take());
            }
            for event in events {
                if let Err(ended) = self.take(&event, send) {
                    send(self.lines.take())?;
                    return Err(ended);
                }
                if self.lines.len() > BATCH_BYTES {
                    send(self.lines.take())?;
                }
            }
        }
    }

    /// Reads the available events, at most one buffer full.
    fn next_events(&self, buffer: &mut [MaybeUninit<u8>]) -> Result<Vec<Event>, Ended> {
        let mut reader = Reader::new(&self.inotify, buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
                    watch: event.wd(),
                    flags: event.events(),
                    cookie: event.cookie(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }

    fn take(&mut self, event: &Event, send: Send<'_>) -> Result<(), Ended> {
        if event.flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.lines.overflow(&self.root, "changes came faster than they were read: look again");
            return self.watch_all().map_err(|error| {
                if error == Errno::NOENT { Ended::Directory } else { error.into() }
            });
        }
        if event.flags.contains(ReadFlags::IGNORED) {
            self.directories.remove(&event.watch);
            return Ok(());
        }
        // The directory has left or has another name; its entries were announced under the new one.
        let Some(directory) = self.directories.get(&event.watch) else { return Ok(()) };
        match &event.name {
            Some(name) => {
                let path = directory.join(OsStr::from_bytes(name));
                self.take_entry(event, name, path, send)
            }
            None if *directory == self.root => self.take_root(event.flags),
            // The directory above has an event about the same change.
            None => Ok(()),
        }
    }

    fn take_root(&mut self, flags: ReadFlags) -> Result<(), Ended> {
        if flags.intersects(ReadFlags::DELETE_SELF | ReadFlags::UNMOUNT) {
            self.lines.add(Op::Remove, &self.root);
            return Err(Ended::Directory);
        }
        if flags.contains(ReadFlags::MOVE_SELF) {
            self.lines.add(Op::Rename, &self.root);
            return Err(Ended::Directory);
        }
        if flags.contains(ReadFlags::ATTRIB) {
            self.lines.add(Op::Chmod, &self.root);
        }
        Ok(())
    }

    fn take_entry(
        &mut self,
        event: &Event,
        name: &[u8],
        path: PathBuf,
        send: Send<'_>,
    ) -> Result<(), Ended> {
        if draft::is_draft(OsStr::from_bytes(name)) {
            self.take_draft(event, name);
            return Ok(());
        }
        if name == entry::UPLOADS.as_bytes() {
            return Ok(());
        }
        let flags = event.flags;
        if flags.contains(ReadFlags::MOVED_TO) && self.take_renamed_draft(event.cookie, &path) {
            return Ok(());
        }
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if !self.announced.remove(&path) {
                self.lines.add(Op::Create, &path);
            }
            if flags.contains(ReadFlags::ISDIR) && self.recursive {
                return self.add(path, send);
            }
        } else if flags.contains(ReadFlags::MODIFY) {
            self.lines.add(Op::Write, &path);
        } else if flags.contains(ReadFlags::ATTRIB) {
            self.lines.add(Op::Chmod, &path);
        } else {
            let op = if flags.contains(ReadFlags::DELETE) { Op::Remove } else { Op::Rename };
            self.announced.remove(&path);
            self.lines.add(op, &path);
            if flags.contains(ReadFlags::ISDIR) {
                self.forget(&path);
            }
        }
        Ok(())
    }

    fn take_draft(&mut self, event: &Event, name: &[u8]) {
        if event.flags.contains(ReadFlags::MOVED_FROM) {
            let renamed = if draft::is_replacing(name) { Renamed::Replacing } else { Renamed::New };
            self.renamed_draft = Some((event.cookie, renamed));
        }
    }

    /// Reports a draft that was renamed to its target as what its author did: writing a file.
    fn take_renamed_draft(&mut self, cookie: u32, path: &Path) -> bool {
        let Some((_, renamed)) = self.renamed_draft.take_if(|(known, _)| *known == cookie) else {
            return false;
        };
        let announced = self.announced.remove(path);
        if matches!(renamed, Renamed::New) && !announced {
            self.lines.add(Op::Create, path);
        }
        self.lines.add(Op::Write, path);
        true
    }

    /// Watches a directory that came into the tree, with everything below it, and announces its
    /// entries.
    fn add(&mut self, path: PathBuf, send: Send<'_>) -> Result<(), Ended> {
        if !self.watch(&path)? {
            return Ok(());
        }
        self.add_below(path, &mut |changes, path| {
            changes.announce(path);
            if changes.lines.len() > BATCH_BYTES { send(changes.lines.take()) } else { Ok(()) }
        })
    }

    /// Watches the directories below a watched one, and calls `show` for every entry.
    fn add_below<E: From<Errno>>(
        &mut self,
        path: PathBuf,
        show: &mut dyn FnMut(&mut Self, &Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut levels = if self.recursive { vec![path] } else { Vec::new() };
        while let Some(directory) = levels.pop() {
            let entries = match entry::entries(&directory) {
                Ok(entries) => entries,
                // It is already gone, and so is its watch.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    self.tell_blind(&directory);
                    continue;
                }
            };
            for (name, kind) in entries {
                let path = directory.join(name);
                show(self, &path)?;
                if kind.is_dir() && self.watch(&path)? {
                    levels.push(path);
                }
            }
        }
        Ok(())
    }

    fn announce(&mut self, path: &Path) {
        self.lines.add(Op::Create, path);
        if self.announced.len() < ANNOUNCED_MAX {
            self.announced.insert(path.to_path_buf());
        }
    }

    /// Watches a directory. Returns whether it was not watched before under this path.
    fn watch(&mut self, path: &Path) -> Result<bool, Errno> {
        if self.directories.len() >= DIRECTORIES_MAX {
            self.tell_blind(path);
            return Ok(false);
        }
        match inotify::add_watch(&self.inotify, path, wanted() | WatchFlags::DONT_FOLLOW) {
            Ok(watch) => Ok(self
                .directories
                .insert(watch, path.to_path_buf())
                .is_none_or(|before| before != path)),
            // It is already gone, or something else has its name now, which has its own event.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(Errno::NOSPC | Errno::ACCESS | Errno::NAMETOOLONG) => {
                self.tell_blind(path);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn tell_blind(&mut self, path: &Path) {
        if self.blind == Blind::No {
            self.blind = Blind::Told;
            self.lines.overflow(
                path,
                "this directory cannot be watched, and maybe others: their changes are not told",
            );
        }
    }

    /// Ends the watches of a directory that has left, and of all below it.
    fn forget(&mut self, path: &Path) {
        let gone: Vec<i32> = self
            .directories
            .iter()
            .filter(|(_, known)| known.starts_with(path))
            .map(|(watch, _)| *watch)
            .collect();
        for watch in gone {
            self.directories.remove(&watch);
            // The kernel itself ends the watch of a deleted directory.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }
}

fn wanted() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
}
