//! Durable changes on disk: data is written, then flushed, and only then gets its final name.

use crate::error::Error;
use files::Readers;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub(crate) fn make_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::io("make the folder", path))
}

/// Makes a folder that the users of an instance may read, whatever the umask of this process is.
/// Folders above it keep out the users of this machine.
pub(crate) fn make_open_folder(path: &Path) -> Result<(), Error> {
    make_folder(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(Error::io("open up", path))
}

/// Replaces a small file atomically.
pub(crate) fn write(path: &Path, scratch: &Path, bytes: &[u8]) -> Result<(), Error> {
    files::replace_by(scratch, path, Readers::Anyone, bytes).map_err(Error::io("write", path))
}

/// Moves something that is flushed to its final name.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    files::rename(from, to).map_err(Error::io("rename", from))
}

/// Flushes a tree of many files at once, together with the file system that it is on.
pub(crate) fn flush_tree(folder: &Path) -> Result<(), Error> {
    let flush = || rustix::fs::syncfs(File::open(folder)?).map_err(std::io::Error::from);
    flush().map_err(Error::io("flush", folder))
}

pub(crate) fn remove_file(path: &Path) -> Result<(), Error> {
    files::remove(path).map_err(Error::io("remove", path))
}

pub(crate) fn remove_tree(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Lists the digests that name files in a folder; files with other names are not ours.
pub(crate) fn digests_in(folder: &Path) -> Result<Vec<crate::Digest>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        found
            .extend(entry.file_name().to_str().and_then(|name| crate::Digest::from_hex(name).ok()));
    }
    Ok(found)
}
