//! Writes small files so that a reader, after a crash or a power cut too, finds either the old
//! content or the new, never a mixture.
//!
//! A file is written beside its place, flushed, and renamed; then its folder is flushed, because
//! without that a power cut can take the new name away again.

mod pool;

pub use pool::FilePool;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Who may read a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Only its owner, because it holds a secret.
    Owner,
    /// Anyone whom the process's umask allows.
    Anyone,
}

impl Readers {
    const fn mode(self) -> u32 {
        match self {
            Self::Owner => 0o600,
            Self::Anyone => 0o666,
        }
    }
}

/// Makes an empty file. An existing one is removed first, because it may have other permissions or
/// be a link to somewhere else.
pub fn create(path: &Path, readers: Readers) -> io::Result<File> {
    remove(path)?;
    OpenOptions::new().write(true).create_new(true).mode(readers.mode()).open(path)
}

/// Makes a file whose content is on disk when this returns. Its name is not yet; see [`rename`].
pub fn write_new(path: &Path, readers: Readers, content: &[u8]) -> io::Result<()> {
    let mut file = create(path, readers)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Gives a flushed file or folder its final name. The name is on disk when this returns.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder_of(to)
}

/// Replaces a file. The new content is on disk when this returns.
///
/// Two writers of the same file must not run at once, since they would share the temporary file
/// beside it. [`replace_by`] takes another name for that.
pub fn replace(path: &Path, readers: Readers, content: &[u8]) -> io::Result<()> {
    replace_by(&beside(path), path, readers, content)
}

/// Like [`replace`], but first writes to `scratch`, which must be on the same file system.
pub fn replace_by(scratch: &Path, path: &Path, readers: Readers, content: &[u8]) -> io::Result<()> {
    let replaced = write_new(scratch, readers, content).and_then(|()| rename(scratch, path));
    without(scratch, replaced)
}

/// Replaces a file in one step for readers, without waiting for the disk. Only for content that may
/// be lost in a power cut because what it describes is lost then too.
pub fn replace_unflushed(path: &Path, readers: Readers, content: &[u8]) -> io::Result<()> {
    let scratch = beside(path);
    let written = create(&scratch, readers).and_then(|mut file| file.write_all(content));
    without(&scratch, written.and_then(|()| fs::rename(&scratch, path)))
}

/// Removes what a failed replacement has left, such as half a file on a full disk.
fn without(scratch: &Path, replaced: io::Result<()>) -> io::Result<()> {
    if replaced.is_err() {
        // The failure says enough, and the next replacement removes it too.
        let _ = remove(scratch);
    }
    replaced
}

/// Removes a file if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Flushes the folder of `path`, so that the names in it are durable.
pub fn sync_folder_of(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Returns the folder that `path` is in. A bare file name is in the current folder.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("name");
        replace(&path, Readers::Anyone, b"a longer first content").unwrap();
        replace(&path, Readers::Anyone, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        replace_unflushed(&path, Readers::Anyone, b"third").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_replacement_that_fails_leaves_nothing_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("name");
        // No file can take the name of a folder.
        fs::create_dir(&path).unwrap();
        replace(&path, Readers::Anyone, b"new").unwrap_err();
        replace_unflushed(&path, Readers::Anyone, b"new").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_secret_does_not_inherit_the_rights_of_what_lay_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for left in [&path, &path.with_extension("new")] {
            fs::write(left, "open to all").unwrap();
            fs::set_permissions(left, fs::Permissions::from_mode(0o644)).unwrap();
        }
        replace(&path, Readers::Owner, b"secret").unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_link_in_the_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, path.with_extension("new")).unwrap();
        replace(&path, Readers::Anyone, b"new").unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"kept");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_path_of_one_word_lies_in_the_current_folder() {
        assert_eq!(folder_of(Path::new("name")), Path::new("."));
        assert_eq!(folder_of(Path::new("/data/name")), Path::new("/data"));
    }
}
