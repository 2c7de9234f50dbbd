//! Reads folders of a tree that an attacker may control.

use crate::error::SnapshotError;
use crate::sparse::next_data;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Statx, StatxFlags, ftruncate,
    openat2, seek, sendfile, statx, unlinkat,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// The most entries of a tree, and so of a folder: copying needs memory for each of them.
pub(super) const ENTRIES_MAX: usize = 2_000_000;
/// How often to try opening a folder that others keep moving.
const TRIES: u32 = 100;
/// The most that one system call copies, so that it can be interrupted.
const PIECE_BYTES: u64 = 64 << 20;

/// Copies a file's content, except its holes.
pub(super) fn copy_data(from: &OwnedFd, into: &OwnedFd, size: u64) -> io::Result<()> {
    ftruncate(into, size)?;
    let mut at = 0;
    while let Some(data) = next_data(from, at, size)? {
        seek(into, SeekFrom::Start(data.start))?;
        let mut read = data.start;
        while read < data.end {
            let piece = (data.end - read).min(PIECE_BYTES);
            let piece = usize::try_from(piece).map_err(io::Error::other)?;
            // This moves both positions. If nothing comes, the file was truncated meanwhile.
            if sendfile(into, from, Some(&mut read), piece)? == 0 {
                return Ok(());
            }
        }
        at = data.end;
    }
    Ok(())
}

/// Returns the metadata of an entry of a folder, or of the folder itself if the name is empty.
pub(super) fn look(folder: &OwnedFd, name: &OsStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    Ok(statx(folder, name, flags, StatxFlags::BASIC_STATS)?)
}

pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

pub(super) fn changed_ns(stat: &Statx) -> i128 {
    i128::from(stat.stx_ctime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_ctime.tv_nsec)
}

/// Opens a folder below an open one, if it exists and is a folder.
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
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "its folders are moved all the time"))
}

pub(super) fn names(folder: &OwnedFd) -> Result<Vec<OsString>, SnapshotError> {
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

/// Removes an entry of any kind, with everything in it.
pub(super) fn remove(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(error) => return Err(error.into()),
    }
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    std::fs::remove_dir_all(path)
}

pub(super) fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::NXIO];
    gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
        || error.kind() == io::ErrorKind::NotFound
}
