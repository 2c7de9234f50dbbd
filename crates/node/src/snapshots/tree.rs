//! Copying what an instance wrote while it goes on writing: once while it runs, and once more, while
//! it stands still, what has changed since.
//!
//! The tree is an enemy's. Nothing in it is followed: folders are opened below the top without
//! links, and all else by one name in an open folder. The copy is in a folder that nobody else has.

use super::entry::{self, Ids};
use crate::error::SnapshotError;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Statx, StatxFlags, ftruncate,
    linkat, mkdirat, openat, openat2, readlinkat, seek, sendfile, statx, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What is remembered of each file between the two looks takes memory.
const ENTRIES_MAX: usize = 2_000_000;
/// Of the kernel: what lies deeper has no path.
const PATH_BYTES_MAX: usize = 4_000;
/// How often a folder is opened that others move about meanwhile.
const TRIES: u32 = 100;
/// The clock of files stands still for some milliseconds at a time.
const CLOCK_STEP_NS: i128 = 100_000_000;
/// Of one call of the kernel, so that it can be interrupted.
const PIECE_BYTES: u64 = 64 << 20;
/// Two machines that draw from the same seed would draw the same numbers.
const SEEDS: [&str; 4] = [
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
    /// Of what the last look saw, with the inodes in the source.
    seen: HashMap<PathBuf, u64>,
    /// Files that somebody had open for writing when they were copied: a program that has one
    /// mapped changes it without a trace.
    open: HashSet<u64>,
    /// Where a file with several names is in the copy.
    links: HashMap<u64, PathBuf>,
    /// What has changed since, in nanoseconds of the clock of files.
    since: i128,
    /// Of the folders, which get them last: each file that is made in one changes them.
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

/// What a copy takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) bytes: u64,
}

impl<'c> Copy<'c> {
    /// Of a folder into an empty one. `ids` says what the owners in the source are.
    pub(super) fn new(source: &'c OwnedFd, into: &'c OwnedFd, ids: Ids) -> io::Result<Self> {
        // The clock of files, whatever clock the program has.
        let since = changed_ns(&look(into, OsStr::new(""))?) - CLOCK_STEP_NS;
        Ok(Self {
            source,
            into,
            ids,
            seen: HashMap::new(),
            open: HashSet::new(),
            links: HashMap::new(),
            since,
            times: Vec::new(),
        })
    }

    /// Makes the copy what the source is now, as far as nothing changes meanwhile. `first`: nothing
    /// is there yet.
    pub(super) fn look(&mut self, first: bool) -> Result<(), SnapshotError> {
        let mut now = HashMap::new();
        self.links.clear();
        self.times.clear();
        let mut next = vec![PathBuf::new()];
        while let Some(folder) = next.pop() {
            let Some(from) = open_folder(self.source, &folder)? else { continue };
            let Some(into) = open_folder(self.into, &folder)? else { continue };
            self.dress_folder(&folder, &from, &into)?;
            for name in names(&from)? {
                let path = folder.join(&name);
                if path.as_os_str().len() > PATH_BYTES_MAX {
                    return Err(SnapshotError::TooDeep);
                }
                let stat = match look(&from, &name) {
                    Ok(stat) => stat,
                    Err(error) if is_gone(&error) => continue,
                    Err(error) => return Err(error.into()),
                };
                if now.len() >= ENTRIES_MAX {
                    return Err(SnapshotError::TooMany { most: ENTRIES_MAX });
                }
                let place = Place { from: &from, into: &into, name: &name, path, stat };
                if self.is_left_out(&place) {
                    continue;
                }
                if kind(&place.stat) == FileType::Directory {
                    next.push(place.path.clone());
                }
                self.take_over(&place, first)?;
                now.insert(place.path, stat.stx_ino);
            }
        }
        let before = std::mem::replace(&mut self.seen, now);
        self.remove_gone(before.into_keys())
    }

    /// Gives the folders their times. Nothing is to be changed any more.
    pub(super) fn finish(&mut self) -> Result<Size, SnapshotError> {
        for (folder, times) in self.times.drain(..) {
            if let Some(folder) = open_folder(self.into, &folder)? {
                rustix::fs::futimens(folder, &times).map_err(io::Error::from)?;
            }
        }
        let mut size = Size::default();
        for path in self.seen.keys() {
            let stat = look(self.into, path.as_os_str())?;
            size.bytes += entry::bytes_of(&stat);
        }
        Ok(size)
    }

    fn is_left_out(&self, place: &Place<'_>) -> bool {
        let is_seed = SEEDS.iter().any(|seed| place.path == Path::new(seed));
        match kind(&place.stat) {
            FileType::RegularFile => is_seed,
            FileType::Directory | FileType::Symlink | FileType::Fifo => false,
            FileType::CharacterDevice => !entry::is_whiteout(&place.stat),
            // Nobody listens at a socket of another instance.
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

    fn take_over(&mut self, place: &Place<'_>, first: bool) -> Result<(), SnapshotError> {
        let Place { stat, path, .. } = place;
        let is_folder = kind(stat) == FileType::Directory;
        if !first && self.is_unchanged(place)? {
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
            // It went while it was copied; the next look says what is there instead.
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

    /// Gives a file that is there already one more name.
    fn link(&self, place: &Place<'_>) -> io::Result<bool> {
        let Some(other) = self.links.get(&place.stat.stx_ino) else { return Ok(false) };
        let (Some(name), above) = (other.file_name(), other.parent()) else { return Ok(false) };
        // Not by its path: what was a folder in it may be a link by now.
        let Some(folder) = open_folder(self.into, above.unwrap_or(Path::new("")))? else {
            return Ok(false);
        };
        match linkat(&folder, name, place.into, place.name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A folder is one if it is there as one; what is in it is looked at anyway.
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
        Ok(is_folder
            || same
                && changed_ns(&place.stat) < self.since
                && !self.open.contains(&place.stat.stx_ino))
    }

    fn copy(&mut self, place: &Place<'_>) -> Result<(), SnapshotError> {
        let Place { into, name, stat, .. } = place;
        match kind(stat) {
            FileType::RegularFile => return self.copy_file(place),
            FileType::Symlink => {
                let target = readlinkat(place.from, *name, Vec::new()).map_err(io::Error::from)?;
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

    /// What was copied and is in the source no more.
    fn remove_gone(&self, before: impl Iterator<Item = PathBuf>) -> Result<(), SnapshotError> {
        for path in before.filter(|path| !self.seen.contains_key(path)) {
            let (Some(name), above) = (path.file_name(), path.parent()) else { continue };
            // With the folder that it was in it may have gone already.
            let Some(folder) = open_folder(self.into, above.unwrap_or(Path::new("")))? else {
                continue;
            };
            remove(&folder, name)?;
        }
        Ok(())
    }
}

/// All that is not a hole.
fn copy_data(from: &OwnedFd, into: &OwnedFd, size: u64) -> io::Result<()> {
    ftruncate(into, size)?;
    let mut at = 0;
    while at < size {
        let begin = match seek(from, SeekFrom::Data(at)) {
            Ok(begin) if begin < size => begin,
            Ok(_) | Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(from, SeekFrom::Hole(begin))?.min(size);
        seek(into, SeekFrom::Start(begin))?;
        let mut read = begin;
        while read < end {
            let piece = usize::try_from((end - read).min(PIECE_BYTES)).map_err(io::Error::other)?;
            // Moves both positions. It was cut meanwhile where nothing comes.
            if sendfile(into, from, Some(&mut read), piece)? == 0 {
                return Ok(());
            }
        }
        at = end;
    }
    Ok(())
}

/// Of an entry of a folder, or of the folder itself where the name is empty.
pub(super) fn look(folder: &OwnedFd, name: &OsStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    Ok(statx(folder, name, flags, StatxFlags::BASIC_STATS)?)
}

pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

fn changed_ns(stat: &Statx) -> i128 {
    i128::from(stat.stx_ctime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_ctime.tv_nsec)
}

/// One below an open folder, if it is there as a folder.
pub(super) fn open_folder(top: &OwnedFd, path: &Path) -> io::Result<Option<OwnedFd>> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    for _ in 0..TRIES {
        match openat2(top, path, flags, Mode::empty(), inside) {
            Ok(folder) => return Ok(Some(folder)),
            // Folders were moved while the kernel looked.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "its folders are moved all the time"))
}

fn names(folder: &OwnedFd) -> Result<Vec<OsString>, SnapshotError> {
    let mut names = Vec::new();
    for one in Dir::read_from(folder).map_err(io::Error::from)? {
        let one = one.map_err(io::Error::from)?;
        let name = one.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
        if names.len() > ENTRIES_MAX {
            return Err(SnapshotError::TooMany { most: ENTRIES_MAX });
        }
    }
    Ok(names)
}

/// Whatever it is, with all that is in it.
fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    use std::os::fd::AsRawFd;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    debug_assert!(!name.as_bytes().is_empty());
    std::fs::remove_dir_all(path)
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
        || error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, XattrFlags, lsetxattr, makedev, mknodat};
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;

    fn open(path: &Path) -> OwnedFd {
        openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    /// Two looks at a tree, with a change between them, and what the copy is then.
    fn copied(fill: impl Fn(&Path), change: impl Fn(&Path)) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (from, into) = (folder.path().join("from"), folder.path().join("into"));
        std::fs::create_dir(&from).unwrap();
        std::fs::create_dir(&into).unwrap();
        fill(&from);
        let (source, target) = (open(&from), open(&into));
        let mut copy = Copy::new(&source, &target, Ids { root: 0 }).unwrap();
        copy.look(true).unwrap();
        change(&from);
        copy.look(false).unwrap();
        copy.finish().unwrap();
        folder
    }

    #[test]
    fn no_device_and_no_socket_is_copied_but_what_hides_is() {
        let node = |path: PathBuf, major, minor| {
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(major, minor)).unwrap();
        };
        let fill = |from: &Path| {
            node(from.join("null"), 1, 3);
            node(from.join("removed"), 0, 0);
            drop(UnixListener::bind(from.join("socket")).unwrap());
            std::fs::create_dir(from.join("opaque")).unwrap();
            let none = XattrFlags::empty();
            lsetxattr(from.join("opaque"), "user.overlay.opaque", b"y", none).unwrap();
            lsetxattr(from.join("opaque"), "user.overlay.origin", b"x", none).unwrap();
        };
        let folder = copied(fill, |_| {});
        let into = folder.path().join("into");
        let mut found: Vec<_> = names(&open(&into)).unwrap();
        found.sort();
        assert_eq!(found, ["opaque", "removed"]);
        assert_eq!(std::fs::symlink_metadata(into.join("removed")).unwrap().rdev(), 0);
        let mut value = [0; 9];
        let opaque = open(&into.join("opaque"));
        let mut attribute = |name: &str| rustix::fs::fgetxattr(&opaque, name, &mut value[..]);
        assert_eq!(attribute("user.overlay.opaque"), Ok(1));
        assert_eq!(attribute("user.overlay.origin"), Err(Errno::NODATA));
    }

    #[test]
    fn the_second_look_makes_it_what_is_there_then() {
        let fill = |from: &Path| {
            for folder in ["stays", "goes", "becomes"] {
                std::fs::create_dir(from.join(folder)).unwrap();
                std::fs::write(from.join(folder).join("in"), "in").unwrap();
            }
            std::fs::write(from.join("file"), "first").unwrap();
            std::fs::hard_link(from.join("file"), from.join("other")).unwrap();
        };
        let change = |from: &Path| {
            std::fs::remove_dir_all(from.join("goes")).unwrap();
            std::fs::rename(from.join("becomes"), from.join("was")).unwrap();
            symlink("/etc", from.join("becomes")).unwrap();
            std::fs::write(from.join("file"), "second").unwrap();
            std::fs::hard_link(from.join("file"), from.join("third")).unwrap();
            std::fs::remove_file(from.join("stays/in")).unwrap();
        };
        let folder = copied(fill, change);
        let into = folder.path().join("into");
        let mut found: Vec<_> = names(&open(&into)).unwrap();
        found.sort();
        assert_eq!(found, ["becomes", "file", "other", "stays", "third", "was"]);
        assert_eq!(std::fs::read_link(into.join("becomes")).unwrap(), Path::new("/etc"));
        assert_eq!(std::fs::read_to_string(into.join("was/in")).unwrap(), "in");
        assert_eq!(std::fs::read_dir(into.join("stays")).unwrap().count(), 0);
        for name in ["file", "other", "third"] {
            assert_eq!(std::fs::read_to_string(into.join(name)).unwrap(), "second");
            assert_eq!(std::fs::metadata(into.join(name)).unwrap().nlink(), 3);
        }
    }

    #[test]
    fn a_file_that_is_mapped_is_copied_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let read = || std::fs::File::open(&path).unwrap();
        assert!(!sys::may_be_written(read().as_fd()));
        let writer = std::fs::File::options().append(true).open(&path).unwrap();
        assert!(sys::may_be_written(read().as_fd()));
        drop(writer);
        assert!(!sys::may_be_written(read().as_fd()));
    }
}
