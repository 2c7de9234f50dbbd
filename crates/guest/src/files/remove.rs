//! Deletes files and trees without ever following a link.

use super::access::refuse;
use super::blocking::blocking;
use super::done::Done;
use super::path::resolve;
use crate::http::{Answer, Error, Request};
use crate::instance::Instance;
use crate::route::PathArgument;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// How many directories are open at once. Deeper ones are first moved up, so that trees of any
/// depth can be deleted.
const DEPTH_MAX: usize = 64;

pub(crate) async fn delete(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let path = resolve(instance, argument);
    let recursive = request.query_flag("recursive")? == Some(true);
    blocking(move || {
        let metadata = path.symlink_metadata().map_err(|error| refuse(&path, &error))?;
        if !metadata.is_dir() {
            std::fs::remove_file(&path).map_err(|error| refuse(&path, &error))?;
            return Done::of("File deleted successfully", &path);
        }
        if path == Path::new("/") {
            return Err(Error::Unprocessable("the root of the file system stays".into()));
        }
        if recursive {
            empty(&path).map_err(|error| refuse(&path, &error.into()))?;
        }
        std::fs::remove_dir(&path).map_err(|error| refuse(&path, &error))?;
        Done::of("Directory deleted successfully", &path)
    })
    .await
}

/// Deletes everything in a directory.
fn empty(path: &Path) -> rustix::io::Result<()> {
    let root = open(rustix::fs::CWD, path)?;
    let mut moved_up = 0;
    loop {
        let before = moved_up;
        sweep(&root, &mut moved_up)?;
        if moved_up == before {
            return Ok(());
        }
    }
}

/// A directory that is being emptied, and its name in its parent.
struct Level {
    name: CString,
    directory: Dir,
}

/// Goes through the tree once, deepest entries first. A directory below the depth limit is moved to
/// the top for the next pass.
fn sweep(root: &OwnedFd, moved_up: &mut usize) -> rustix::io::Result<()> {
    let mut levels = vec![Level { name: CString::default(), directory: Dir::read_from(root)? }];
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { return Ok(()) };
        let Some(entry) = level.directory.read().transpose()? else {
            if let (Some(done), Some(above)) = (levels.pop(), levels.last()) {
                let above = above.directory.fd()?;
                gone_is_fine(rustix::fs::unlinkat(above, &done.name, AtFlags::REMOVEDIR))?;
            }
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let directory = level.directory.fd()?;
        if !is_directory(directory, &entry)? {
            gone_is_fine(rustix::fs::unlinkat(directory, name, AtFlags::empty()))?;
        } else if depth == DEPTH_MAX {
            move_up(root, directory, name, moved_up)?;
        } else {
            let inner = Dir::new(open(directory, name)?)?;
            levels.push(Level { name: name.to_owned(), directory: inner });
        }
    }
}

fn open(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Returns whether an entry is a directory. Some file systems do not tell while listing.
fn is_directory(directory: BorrowedFd<'_>, entry: &DirEntry) -> rustix::io::Result<bool> {
    let kind = match entry.file_type() {
        FileType::Unknown => {
            let stat = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            FileType::from_raw_mode(stat.st_mode)
        }
        known => known,
    };
    Ok(kind == FileType::Directory)
}

/// Ignores that something is already gone, because others may be deleting the same tree.
fn gone_is_fine(result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    if result == Err(Errno::NOENT) { Ok(()) } else { result }
}

fn move_up(
    root: &OwnedFd,
    from: BorrowedFd<'_>,
    name: &CStr,
    moved_up: &mut usize,
) -> rustix::io::Result<()> {
    loop {
        *moved_up += 1;
        let free = format!(".holm-remove-{moved_up}");
        match rustix::fs::renameat_with(from, name, root, free, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return gone_is_fine(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_any_depth_goes_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        let mut at = open(rustix::fs::CWD, &tree).unwrap();
        for depth in 0..3_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            if depth % 500 == 0 {
                rustix::fs::symlinkat(&outside, &at, "link").unwrap();
                rustix::fs::mkdirat(&at, ".holm-remove-1", Mode::RWXU).unwrap();
            }
            at = open(&at, "d").unwrap();
        }
        empty(&tree).unwrap();
        assert_eq!(tree.read_dir().unwrap().count(), 0);
        assert!(outside.join("kept").exists());
    }
}
