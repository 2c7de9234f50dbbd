//! The files behind a bucket. Sandboxes write the same tree at the same time, and nobody trusts
//! what is in it: every path is walked by the kernel without links and without leaving the tree
//! ([`beneath`]), and only what was seen to be a regular file is opened.
//!
//! A file that is written has no name until it is whole and on the disk ([`Folder::draft`],
//! [`Folder::publish`]), so a kill leaves the old one or the new one.

mod publish;
mod sheet;
mod walk;

pub(crate) use publish::PASSING;
pub(crate) use sheet::{Facts, Sheet};
pub(crate) use walk::{Found, Position, Walk};

use crate::access::{Bucket, Owner};
use crate::error::Error;
use crate::key::{HIDDEN_FOLDER, Key};
use parking_lot::{Mutex, MutexGuard};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use types::World;

/// How often something is tried again that came between others' changes.
const TRIES: usize = 64;
/// Marks folders: that they are objects, or that they were made for the objects in them and go with
/// the last. Folders that sandboxes made have none, and stay.
const FOLDER_MARK: &str = "trusted.holm.s3.folder";
const IS_OBJECT: &[u8] = b"object";
const IS_PARENT: &[u8] = b"parent";
const FOLDER_MODE: u32 = 0o755;

/// Makes the hidden folder inside the files of a bucket, for whoever has no other place for it.
/// Keys do not lead there, and lists do not show it; sandboxes can see it.
pub fn hidden_folder(files: impl AsFd) -> std::io::Result<OwnedFd> {
    match open_folder(&files, HIDDEN_FOLDER) {
        Err(Errno::NOENT) => {}
        opened => return Ok(opened?),
    }
    match rustix::fs::mkdirat(&files, HIDDEN_FOLDER, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(open_folder(files, HIDDEN_FOLDER)?),
        Err(error) => Err(error.into()),
    }
}

/// Opens what lies at `path` below `root`, and nothing that a link or a mount leads to.
fn beneath(root: impl AsFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let path = if path.is_empty() { "." } else { path };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(root.as_fd(), path, flags, Mode::empty(), resolve) {
            // Something on the way was moved just now.
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

fn open_folder(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
}

/// Whether this says that nothing of ours is there.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG)
}

/// Lets the kernel find a descriptor by a path, whatever happens to the file's name.
fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Changes of one key, one after the other, so that conditions hold when they take effect. Keys
/// share locks.
pub(crate) struct Locks([Mutex<()>; 256]);

impl Locks {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }

    #[expect(clippy::indexing_slicing, reason = "a byte indexes 256 of them")]
    fn of(&self, bucket: &str, key: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        (bucket, key).hash(&mut hasher);
        let [place, ..] = hasher.finish().to_le_bytes();
        self.0[usize::from(place)].lock()
    }
}

/// Cheap to clone. Its functions block.
#[derive(Clone)]
pub(crate) struct Folder {
    id: String,
    files: Arc<OwnedFd>,
    hidden: Arc<OwnedFd>,
    owner: Owner,
    locks: Arc<Locks>,
    world: World,
}

/// An object that is there, at the moment it was looked at.
pub(crate) struct Object {
    /// It can be asked about, not read.
    file: OwnedFd,
    pub(crate) facts: Facts,
    pub(crate) sheet: Sheet,
    is_folder: bool,
}

impl Object {
    pub(crate) fn etag(&self) -> String {
        if self.is_folder { sheet::etag_of_nothing() } else { self.sheet.etag(&self.facts) }
    }

    pub(crate) fn size(&self) -> u64 {
        if self.is_folder { 0 } else { self.facts.size }
    }

    pub(crate) fn is_folder(&self) -> bool {
        self.is_folder
    }

    /// Opens it for reading: this very file, also when its name has another by now.
    pub(crate) fn open(&self) -> Result<File, Error> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(proc_path(&self.file), flags, Mode::empty())?;
        Ok(File::from(file))
    }
}

impl Folder {
    pub(crate) fn new(bucket: Bucket, locks: Arc<Locks>, world: World) -> Self {
        let Bucket { id, files, hidden, owner, .. } = bucket;
        Self { id, files, hidden, owner, locks, world }
    }

    pub(crate) fn hidden(&self) -> &OwnedFd {
        &self.hidden
    }

    pub(crate) fn find(&self, key: &Key) -> Result<Option<Object>, Error> {
        match self.look(key.path()) {
            Ok(Some(object)) if object.is_folder == key.is_folder() => {
                if object.is_folder && mark(&object.file)?.as_deref() != Some(IS_OBJECT) {
                    return Ok(None);
                }
                Ok(Some(object))
            }
            Ok(_) => Ok(None),
            Err(errno) if is_absent(errno) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// A file or a folder; `None` for all that is neither.
    fn look(&self, path: &str) -> Result<Option<Object>, Errno> {
        look(&self.files, path)
    }
}

fn look(root: &OwnedFd, path: &str) -> Result<Option<Object>, Errno> {
    let file = beneath(root, path, OFlags::PATH)?;
    let stat = rustix::fs::fstat(&file)?;
    let is_folder = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => false,
        FileType::Directory => true,
        _ => return Ok(None),
    };
    let sheet = Sheet::read(&proc_path(&file))?;
    Ok(Some(Object { file, facts: Facts::of(&stat), sheet, is_folder }))
}

/// A file in the hidden folder, such as a part of an upload.
pub(crate) fn look_hidden(folder: &OwnedFd, name: &str) -> Result<Option<Object>, Error> {
    match look(folder, name) {
        Ok(found) => Ok(found.filter(|object| !object.is_folder)),
        Err(errno) if is_absent(errno) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn mark(folder: &impl AsRawFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = [0; 16];
    match rustix::fs::getxattr(proc_path(folder), FOLDER_MARK, &mut value) {
        Ok(length) => Ok(value.get(..length).map(<[u8]>::to_vec)),
        // One of more bytes is none of ours.
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn set_mark(folder: &OwnedFd, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(proc_path(folder), FOLDER_MARK, value, XattrFlags::empty())
}
