//! A folder of small files that come and go quickly.
//!
//! A removed file is kept as a spare, and the next new file is written into a spare. Making and
//! removing files can take far longer than writing them: ext4 without a journal does not use the
//! number of a removed file again for a minute, and each new file searches through all of those.

use crate::{Readers, remove, replace_unflushed, without};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How many spares are kept at most.
const SPARES_MAX: usize = 1_024;

/// Files without secrets, whose content may be lost in a power cut. After a power cut a file may
/// also have what an earlier one had, so the content must say whose it is, or must not matter.
///
/// Names must not end in `.new` or `.spare`. Files with such names are left of an earlier run, and
/// the owner of the folder removes them before the first [`FilePool::put`].
#[derive(Debug)]
pub struct FilePool {
    folder: PathBuf,
    spares: Mutex<Spares>,
}

#[derive(Debug, Default)]
struct Spares {
    free: Vec<u64>,
    last: u64,
}

impl FilePool {
    /// Opens a folder, which must exist.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, spares: Mutex::default() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes or replaces a file, in one step for readers.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let Some(number) = self.spares().free.pop() else {
            return replace_unflushed(&path, Readers::Anyone, content);
        };
        let spare = self.spare(number);
        let written = overwrite(&spare, content).and_then(|()| fs::rename(&spare, &path));
        match without(&spare, written) {
            // Somebody has tidied up.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                replace_unflushed(&path, Readers::Anyone, content)
            }
            written => written,
        }
    }

    /// Removes a file if it exists.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let Some(number) = self.spares().draw() else { return remove(&path) };
        match fs::rename(&path, self.spare(number)) {
            Ok(()) => {
                self.spares().free.push(number);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn spare(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{number}.spare"))
    }

    fn spares(&self) -> std::sync::MutexGuard<'_, Spares> {
        // Numbers are whole after a panic too.
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spares {
    /// Returns a number for one more spare; `None` if there are enough.
    fn draw(&mut self) -> Option<u64> {
        if self.free.len() >= SPARES_MAX {
            return None;
        }
        self.last += 1;
        Some(self.last)
    }
}

/// Gives a file other content. Its length is never zero in between: ext4 writes a file that was cut
/// to nothing to disk as soon as it is closed.
fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(content.len() as u64)?;
    file.write_all_at(content, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn pool() -> (tempfile::TempDir, FilePool) {
        let folder = tempfile::tempdir().unwrap();
        let pool = FilePool::new(folder.path().to_owned());
        (folder, pool)
    }

    #[test]
    fn a_removed_file_becomes_the_next_new_one() {
        let (_folder, pool) = pool();
        let number = |name| fs::metadata(pool.path(name)).unwrap().ino();
        pool.put("first", b"a long content").unwrap();
        let first = number("first");
        pool.remove("first").unwrap();
        assert!(!pool.path("first").exists());
        pool.put("second", b"short").unwrap();
        assert_eq!(fs::read(pool.path("second")).unwrap(), b"short");
        assert_eq!(number("second"), first);
        pool.put("third", b"more").unwrap();
        assert_ne!(number("third"), first);
        assert_eq!(fs::read(pool.path("second")).unwrap(), b"short");
    }

    #[test]
    fn a_file_is_replaced_whether_there_are_spares_or_not() {
        let (_folder, pool) = pool();
        pool.put("name", b"one").unwrap();
        pool.put("other", b"").unwrap();
        pool.put("name", b"two").unwrap();
        pool.remove("other").unwrap();
        pool.put("name", b"three").unwrap();
        assert_eq!(fs::read(pool.path("name")).unwrap(), b"three");
    }

    #[test]
    fn what_is_gone_may_be_removed_again_and_spares_may_be_taken_away() {
        let (folder, pool) = pool();
        pool.remove("never").unwrap();
        pool.put("name", b"one").unwrap();
        pool.remove("name").unwrap();
        pool.remove("name").unwrap();
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        pool.put("name", b"two").unwrap();
        assert_eq!(fs::read(pool.path("name")).unwrap(), b"two");
    }

    #[test]
    fn no_more_spares_are_kept_than_are_useful() {
        let (folder, pool) = pool();
        for number in 0..SPARES_MAX + 3 {
            pool.put(&number.to_string(), b"x").unwrap();
        }
        for number in 0..SPARES_MAX + 3 {
            pool.remove(&number.to_string()).unwrap();
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), SPARES_MAX);
    }
}
