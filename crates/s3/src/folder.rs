//! The files behind a bucket. Sandboxes write the same tree at the same time, so nothing in it is
//! trusted: the kernel resolves every path without following links and without leaving the tree
//! ([`beneath`]), and only what is known to be a regular file is opened.
//!
//! A file has no name until it is complete and on disk ([`Folder::draft`], [`Folder::publish`]), so
//! a kill leaves either the old file or the new one.

mod publish;
mod sheet;
mod walk;

pub(crate) use publish::PASSING;
pub(crate) use sheet::{Facts, Sheet};
pub(crate) use walk::{Found, Position, Walk};

use crate::access::{Bucket, Owner};
use crate::error::{Code, Error};
use crate::key::{HIDDEN_FOLDER, Key};
use parking_lot::{Mutex, MutexGuard};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, XattrFlags};
use rustix::io::Errno;
use std::any::Any;
use std::collections::HashMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};
use types::World;

/// How often to retry an operation that collides with other changes.
const TRIES: usize = 64;
/// Marks folders as objects, or as made for the objects in them, in which case they are removed
/// with the last one. Folders that sandboxes made have no mark, and stay.
const FOLDER_MARK: &str = "trusted.holm.s3.folder";
const IS_OBJECT: &[u8] = b"object";
const IS_PARENT: &[u8] = b"parent";
const FOLDER_MODE: u32 = 0o755;
const HIDDEN_MODE: Mode = Mode::from_raw_mode(0o700);

/// Opens the hidden folder inside the files of a bucket, which holds what is incomplete. Keys do
/// not lead into it and lists do not show it, but sandboxes can see and change it.
fn open_hidden(files: impl AsFd) -> Result<Option<OwnedFd>, Error> {
    match open_folder(files, HIDDEN_FOLDER) {
        Ok(hidden) => Ok(Some(hidden)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            let message = "Something else has the name `.holm-s3` on the drive; remove it there.";
            Err(Error::new(Code::KeyConflict, message))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Opens `path` below `root`, without following links or crossing mounts.
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
            // Something on the path was moved just now.
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            result => return result,
        }
    }
}

fn open_folder(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)
}

/// Returns whether the error means that nothing of ours is there.
fn is_absent(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG)
}

/// Returns a path by which the kernel finds a descriptor, whatever happens to the file's name.
fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// The locks of all buckets in use. Each bucket has its own, so a request that holds some while it
/// waits for a slow drive only delays requests to the same drive.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<String, Weak<KeyLocks>>>);

impl Locks {
    fn of(&self, bucket: &str) -> Arc<KeyLocks> {
        let mut all = self.0.lock();
        if let Some(locks) = all.get(bucket).and_then(Weak::upgrade) {
            return locks;
        }
        // There are never more entries than recent requests.
        all.retain(|_, locks| locks.strong_count() > 0);
        let locks = Arc::new(KeyLocks::new());
        all.insert(bucket.to_owned(), Arc::downgrade(&locks));
        locks
    }
}

/// Makes changes of a key happen one after another, so that conditions still hold when a change
/// takes effect. Several keys share a lock.
struct KeyLocks([Mutex<()>; 256]);

impl KeyLocks {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }

    #[expect(clippy::indexing_slicing, reason = "a byte indexes 256 of them")]
    fn of(&self, key: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let [place, ..] = hasher.finish().to_le_bytes();
        self.0[usize::from(place)].lock()
    }
}

/// The place of a request in the limit on requests. Work on files cannot be cancelled: it goes on
/// after the caller has gone, and counts until it has ended.
pub(crate) type Turn = Arc<dyn Any + Send + Sync>;

/// The files of a bucket. Cheap to clone. Its functions block.
#[derive(Clone)]
pub(crate) struct Folder {
    files: Arc<OwnedFd>,
    /// Created by the first write: there may be no space for it, and reads do not need it.
    hidden: Arc<OnceLock<OwnedFd>>,
    owner: Owner,
    locks: Arc<KeyLocks>,
    world: World,
    _turn: Turn,
}

/// An existing object, as it was when it was looked up.
pub(crate) struct Object {
    /// Opened for queries only, not for reading.
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

    /// Opens it for reading. This is the same file even if its name now belongs to another.
    pub(crate) fn open(&self) -> Result<File, Error> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::open(proc_path(&self.file), flags, Mode::empty())?;
        Ok(File::from(file))
    }
}

impl Folder {
    pub(crate) fn new(bucket: Bucket, locks: &Locks, world: World, turn: Turn) -> Self {
        let Bucket { id, files, owner, .. } = bucket;
        let (hidden, locks) = (Arc::default(), locks.of(&id));
        Self { files, hidden, owner, locks, world, _turn: turn }
    }

    /// Returns the hidden folder and creates it if it is missing.
    pub(crate) fn hidden(&self) -> Result<&OwnedFd, Error> {
        if self.hidden.get().is_none() {
            match rustix::fs::mkdirat(&*self.files, HIDDEN_FOLDER, HIDDEN_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.hidden_if_there()?.ok_or_else(|| Error::broken(Errno::NOENT))
    }

    /// Returns the hidden folder, for callers that only read.
    pub(crate) fn hidden_if_there(&self) -> Result<Option<&OwnedFd>, Error> {
        if let Some(hidden) = self.hidden.get() {
            return Ok(Some(hidden));
        }
        let hidden = open_hidden(&*self.files)?;
        Ok(hidden.map(|hidden| self.hidden.get_or_init(|| hidden)))
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

    /// Looks up a file or a folder. Returns `None` for anything else.
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

/// Looks up a file in the hidden folder, such as a part of an upload.
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
        // A longer value is not one of ours.
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn set_mark(folder: &OwnedFd, value: &[u8]) -> Result<(), Errno> {
    rustix::fs::setxattr(proc_path(folder), FOLDER_MARK, value, XattrFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::uploads;
    use admission::{Limits, Pool};
    use rustix::mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
        fsopen,
    };
    use std::io::Write as _;
    use std::time::Duration;
    use types::Timestamp;

    /// Returns a file system with this many inodes. It is not mounted, and ends with its
    /// descriptor.
    fn small(inodes: &str) -> OwnedFd {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        fsconfig_set_string(context.as_fd(), "nr_inodes", inodes).unwrap();
        fsconfig_create(context.as_fd()).unwrap();
        let nothing = MountAttrFlags::empty();
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, nothing).unwrap()
    }

    fn write(files: &OwnedFd, name: &str) -> Result<(), Errno> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(files, name, flags, Mode::RWXU).map(drop)
    }

    fn folder(files: OwnedFd) -> Folder {
        folder_for(files, Arc::new(()))
    }

    fn folder_for(files: OwnedFd, turn: Turn) -> Folder {
        let (id, owner) = ("bucket".to_owned(), Owner { user: 0, group: 0 });
        let bucket = Bucket { id, files: Arc::new(files), owner, may_write: true };
        let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(7));
        Folder::new(bucket, &Locks::default(), world, turn)
    }

    /// Does everything that a read does.
    #[track_caller]
    fn assert_readable(folder: &Folder) {
        let key = Key::new("file0").unwrap();
        assert!(folder.find(&key).unwrap().unwrap().open().is_ok());
        assert!(uploads::list(folder, 10).is_ok_and(|uploads| uploads.is_empty()));
        let (now, life) = (Timestamp::from_ms(0), Duration::from_secs(1));
        assert!(uploads::tidy(folder, now, life).is_ok());
    }

    #[test]
    fn a_full_drive_that_nobody_wrote_to_by_s3_is_read() {
        let files = small("6");
        let full = (0..10).find_map(|number| write(&files, &format!("file{number}")).err());
        assert_eq!(full, Some(Errno::NOSPC));
        let folder = folder(files);
        assert_readable(&folder);
        assert_eq!(folder.draft().unwrap_err().code, Code::StorageFull);
        // It takes writes as soon as there is space.
        let gone = Key::new("file1").unwrap();
        assert!(folder.remove(&gone, |_| Ok(())).unwrap());
        assert!(folder.remove(&Key::new("file2").unwrap(), |_| Ok(())).unwrap());
        assert!(folder.draft().is_ok());
    }

    /// Between the moment a draft gets its name and the next look at it, a sandbox can write it.
    #[test]
    fn what_a_sandbox_writes_gets_no_etag_and_checksum_of_a_client() {
        let folder = folder(small("100"));
        let checksum = ("x-amz-checksum-crc32".to_owned(), "AAAAAA==".to_owned());
        let mut sheet = Sheet::new(Vec::new()).with_checksum(Some(checksum));
        let mut draft = folder.draft().unwrap();
        draft.write_all(b"of the client").unwrap();
        folder.finish(&draft, &mut sheet, "etag").unwrap();
        let files = open_folder(&*folder.files, "").unwrap();
        folder.place(&draft, &files, "name", true).unwrap();
        let facts = folder.keep_sealed(&draft, &mut sheet).unwrap();
        assert!(sheet.etag(&facts) == "etag" && sheet.checksum(&facts).is_some());
        let by_name = rustix::fs::openat(&files, "name", OFlags::WRONLY, Mode::empty()).unwrap();
        rustix::io::write(&by_name, b"of a sandbox!").unwrap();
        folder.keep_sealed(&draft, &mut sheet).unwrap();
        let found = folder.find(&Key::new("name").unwrap()).unwrap().unwrap();
        assert!(found.etag().ends_with("-0"), "{}", found.etag());
        assert_eq!(found.sheet.checksum(&found.facts), None);
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_place() {
        let pool = Pool::new("requests of a test", Limits { total: 1, share: 1 });
        let turn = Arc::new(pool.take(&"somebody".to_owned(), 1).unwrap());
        let folder = folder_for(small("10"), turn);
        let (go, wait) = std::sync::mpsc::channel();
        let here = folder.clone();
        let work = tokio::task::spawn_blocking(move || {
            wait.recv().unwrap();
            here.draft().map(drop)
        });
        // As if its connection were closed.
        drop(folder);
        assert_eq!(pool.held(), 1);
        go.send(()).unwrap();
        work.await.unwrap().unwrap();
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn a_bucket_waits_for_no_other() {
        let locks = Locks::default();
        let (first, second) = (locks.of("a"), locks.of("b"));
        let all: Vec<_> = first.0.iter().map(Mutex::lock).collect();
        assert!(locks.of("a").0.iter().all(|lock| lock.try_lock().is_none()));
        assert!(second.0.iter().all(|lock| lock.try_lock().is_some()));
        drop(all);
        drop((first, second));
        let _last = locks.of("c");
        assert_eq!(locks.0.lock().len(), 1);
    }

    #[test]
    fn what_has_the_name_of_the_hidden_folder_keeps_nobody_from_reading() {
        let files = small("100");
        write(&files, "file0").unwrap();
        write(&files, HIDDEN_FOLDER).unwrap();
        let folder = folder(files);
        let key = Key::new("file0").unwrap();
        assert!(folder.find(&key).unwrap().is_some());
        assert_eq!(folder.draft().unwrap_err().code, Code::KeyConflict);
    }
}
