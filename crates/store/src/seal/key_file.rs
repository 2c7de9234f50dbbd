//! The file that holds the keys, which all servers on one database share.

use super::key::{Key, parse, render};
use crate::Error;
use files::Readers;
use parking_lot::RwLock;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{Timestamp, World};
use zeroize::Zeroizing;

/// The key file and what this process knows of it. Cheap to clone.
#[derive(Clone)]
pub struct KeyFile(Arc<Inner>);

struct Inner {
    path: PathBuf,
    world: World,
    known: RwLock<Known>,
}

/// The content of the file when it was read last.
struct Known {
    /// Keys, the active one first. Never empty.
    keys: Arc<[Key]>,
    stamp: FileVersion,
}

/// Tells one content of the file from another without reading it. The file is never changed in
/// place, so each content has an inode of its own while it is there.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct FileVersion {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileVersion {
    fn of(file: &Metadata) -> Self {
        Self { inode: file.ino(), bytes: file.len(), modified: (file.mtime(), file.mtime_nsec()) }
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile").field("path", &self.0.path).finish_non_exhaustive()
    }
}

impl KeyFile {
    /// Reads the key file. If there is none, makes a first key, which is only in memory until
    /// [`Self::create`].
    pub(crate) fn open(path: &Path, world: &World) -> Result<Self, Error> {
        let known = match read(path) {
            Ok((text, stamp)) => Known { keys: parse(&text, path)?.into(), stamp },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Known { keys: [Key::new(world)].into(), stamp: FileVersion::default() }
            }
            Err(error) => return Err(unusable(path, "read", &error)),
        };
        let (path, known) = (path.to_owned(), RwLock::new(known));
        Ok(Self(Arc::new(Inner { path, world: world.clone(), known })))
    }

    /// True if there was no file when this was opened.
    pub(crate) fn is_new(&self) -> bool {
        self.0.known.read().stamp == FileVersion::default()
    }

    /// Creates the file with the first key, or takes what another process created meanwhile.
    pub(crate) fn create(&self) -> Result<(), Error> {
        save_new(&self.0.path, &self.keys())?;
        self.reload()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.path
    }

    /// Adds a key and makes it the active one. The others can still open. Returns its id.
    pub fn rotate(&self) -> Result<String, Error> {
        let now = self.0.world.now();
        let new = Key::new(&self.0.world);
        let id = new.id.clone();
        self.change(|mut keys| {
            for key in &mut keys {
                key.retired_at.get_or_insert(now);
            }
            keys.insert(0, new);
            keys
        })?;
        Ok(id)
    }

    /// Removes keys for which `forget` is true, but never the active one.
    pub(super) fn forget(&self, forget: impl Fn(&str, Timestamp) -> bool) -> Result<(), Error> {
        let idle = |key: &Key| key.retired_at.is_some_and(|retired_at| forget(&key.id, retired_at));
        if !self.keys().iter().any(idle) {
            return Ok(());
        }
        self.change(|mut keys| {
            keys.retain(|key| !idle(key));
            keys
        })
    }

    /// Adds the keys of a backup, so that what they sealed can be opened.
    pub(crate) fn absorb(&self, text: &str) -> Result<(), Error> {
        let now = self.0.world.now();
        let added = parse(text, Path::new("of the backup"))?;
        self.change(|mut keys| {
            for mut key in added {
                if keys.iter().all(|known| known.id != key.id) {
                    key.retired_at.get_or_insert(now);
                    keys.push(key);
                }
            }
            keys
        })
    }

    /// Returns the content of the key file, for a self-contained backup.
    pub(crate) fn export(&self) -> Result<String, Error> {
        Ok(render(&self.latest()?).to_string())
    }

    /// Reads the file again, because another server on the same database may have rotated.
    pub(super) fn reload(&self) -> Result<(), Error> {
        let mut known = self.0.known.write();
        let (text, stamp) =
            read(&self.0.path).map_err(|error| unusable(&self.0.path, "read", &error))?;
        // Remembered even if the content is not usable, so that nobody reads that twice.
        known.stamp = stamp;
        known.keys = parse(&text, &self.0.path)?.into();
        Ok(())
    }

    /// Returns the keys that the file has now. The file is only read if it was replaced since the
    /// last time, because texts that merely look sealed ask for this too.
    pub(super) fn latest(&self) -> Result<Arc<[Key]>, Error> {
        let path = &self.0.path;
        let found = fs::metadata(path).map_err(|error| unusable(path, "read", &error))?;
        if self.0.known.read().stamp != FileVersion::of(&found) {
            self.reload()?;
        }
        Ok(self.keys())
    }

    pub(super) fn world(&self) -> &World {
        &self.0.world
    }

    /// Returns the keys as this process knows them.
    pub(super) fn keys(&self) -> Arc<[Key]> {
        self.0.known.read().keys.clone()
    }

    /// Changes the keys that the file has now, while no other process does.
    fn change(&self, change: impl FnOnce(Vec<Key>) -> Vec<Key>) -> Result<(), Error> {
        let path = &self.0.path;
        let _alone = lock(path).map_err(|error| unusable(path, "locked", &error))?;
        self.reload()?;
        let text = render(&change(self.keys().to_vec()));
        files::replace(path, Readers::Owner, text.as_bytes())
            .map_err(|error| unusable(path, "written", &error))?;
        self.reload()
    }
}

/// Waits until no other process changes the file. The lock is on a file beside it, because the key
/// file itself is replaced.
fn lock(path: &Path) -> io::Result<File> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(beside)?;
    file.lock()?;
    Ok(file)
}

/// Creates the file with its first key, unless another process did so in the meantime, since then
/// its keys are in use.
fn save_new(path: &Path, keys: &[Key]) -> Result<(), Error> {
    let save = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let _alone = lock(path)?;
        // Whatever has the name stays, a link that leads nowhere too.
        match path.symlink_metadata() {
            // A process that was killed leaves half a file beside it, which the next one replaces.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::replace(path, Readers::Owner, render(keys).as_bytes())
            }
            found => found.map(drop),
        }
    };
    save().map_err(|error| unusable(path, "made", &error))
}

fn read(path: &Path) -> io::Result<(Zeroizing<String>, FileVersion)> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    if found.permissions().mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can read it: run `chmod 600` on it"));
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text)?;
    Ok((text, FileVersion::of(&found)))
}

fn unusable(path: &Path, act: &str, error: &io::Error) -> Error {
    Error::Unusable(format!("the key file {} cannot be {act}: {error}", path.display()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::seal) fn opened(folder: &Path) -> KeyFile {
        let world =
            World::new(|| Timestamp::from_ms(1_000), |bytes| getrandom::fill(bytes).unwrap());
        let keys = KeyFile::open(&folder.join("keys"), &world).unwrap();
        if keys.is_new() {
            keys.create().unwrap();
        }
        keys
    }

    fn ids(file: &KeyFile) -> Vec<String> {
        file.read().ids().map(str::to_owned).collect()
    }

    #[test]
    fn a_key_file_is_private_and_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let keys = opened(folder.path());
        let sealed = keys.read().seal("res_1", "hunter2").unwrap();
        let active = keys.rotate().unwrap();
        for made in fs::read_dir(folder.path()).unwrap() {
            let made = made.unwrap();
            assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{made:?}");
        }
        let again = opened(folder.path()).read();
        assert_eq!(again.active_id(), active);
        assert_eq!(again.open("res_1", &sealed).unwrap(), "hunter2");
    }

    #[test]
    fn a_key_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let keys = opened(folder.path());
        let path = folder.path().join("keys");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = KeyFile::open(&path, keys.world()).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn a_first_start_that_was_killed_leaves_nothing_for_good() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("keys.new"), "half of a ke").unwrap();
        opened(folder.path());
        let left = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["keys", "keys.lock"]);
    }

    #[test]
    fn a_key_that_another_server_added_opens_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (opened(folder.path()), opened(folder.path()));
        let before = here.read();
        there.rotate().unwrap();
        let sealed = there.read().seal("res_1", "hunter2").unwrap();
        assert_eq!(before.open("res_1", &sealed).unwrap(), "hunter2");
        assert_eq!(ids(&here), ids(&there));
    }

    #[test]
    fn an_unknown_key_does_not_have_an_unchanged_file_read() {
        let folder = tempfile::tempdir().unwrap();
        let keys = opened(folder.path());
        let known = keys.keys();
        keys.read().open("res_1", "sealed:v1:aaaaaaaa:AAAA").unwrap_err();
        assert!(Arc::ptr_eq(&known, &keys.keys()));
    }

    #[test]
    fn a_key_that_another_server_added_meanwhile_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (opened(folder.path()), opened(folder.path()));
        let first = here.read().active_id().to_owned();
        here.rotate().unwrap();
        let added = there.rotate().unwrap();
        here.forget(|id, _| id == first).unwrap();
        assert_eq!(ids(&here).first(), Some(&added));
        assert_eq!(ids(&here).len(), 2);
    }

    #[test]
    fn servers_that_rotate_at_once_all_keep_their_keys() {
        let folder = tempfile::tempdir().unwrap();
        let first = opened(folder.path());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let own = opened(folder.path());
                scope.spawn(move || own.rotate().unwrap());
            }
        });
        first.reload().unwrap();
        assert_eq!(ids(&first).len(), 9);
    }
}
