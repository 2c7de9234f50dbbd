//! Removes a folder of a drive while instances work in it. No link is followed.

use super::walk::{step_into, walk};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;

/// How deep folders may be nested. Each level needs a descriptor while it is emptied.
const DEPTH_MAX: usize = 128;
/// How often a folder is read again because others write into it meanwhile.
const ROUNDS_MAX: usize = 64;

/// Removes a folder with everything in it. Returns whether it existed.
pub(super) fn folder(top: BorrowedFd<'_>, path: &str) -> Result<bool, Errno> {
    let Some((above, name)) = path.rsplit_once('/').filter(|(_, name)| !name.is_empty()) else {
        return Err(Errno::INVAL);
    };
    let found = walk(top, above, false).and_then(|above| {
        let folder = step_into(above.as_fd(), name)?;
        Ok((above, folder))
    });
    let (above, folder) = match found {
        Err(Errno::NOENT) => return Ok(false),
        found => found?,
    };
    remove(above.as_fd(), name, &folder, DEPTH_MAX)?;
    Ok(true)
}

fn remove(above: BorrowedFd<'_>, name: &str, folder: &OwnedFd, depth: usize) -> Result<(), Errno> {
    for _ in 0..ROUNDS_MAX {
        empty(folder.as_fd(), depth)?;
        match unlinkat(above, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Somebody wrote into it meanwhile.
            Err(Errno::NOTEMPTY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Errno::NOTEMPTY)
}

fn empty(folder: BorrowedFd<'_>, depth: usize) -> Result<(), Errno> {
    let depth = depth.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(openat(folder, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        let name = CString::from(entry.file_name());
        if [c".", c".."].contains(&name.as_c_str()) {
            continue;
        }
        match entry.file_type() {
            FileType::Directory => empty_below(folder, &name, depth)?,
            _ => match unlinkat(folder, &name, AtFlags::empty()) {
                Err(Errno::ISDIR) => empty_below(folder, &name, depth)?,
                removed => gone(removed)?,
            },
        }
    }
    Ok(())
}

fn empty_below(folder: BorrowedFd<'_>, name: &CString, depth: usize) -> Result<(), Errno> {
    // If it is not a folder any more, the next round removes it.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        below => empty(below?.as_fd(), depth)?,
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::NOTDIR) => Ok(()),
        removed => gone(removed),
    }
}

fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    proptest! {
        #[test]
        fn all_below_goes_and_nothing_beside(paths in proptest::collection::vec("[ab](/[ab]){0,4}", 0..12)) {
            let top = tempfile::tempdir().unwrap();
            fs::create_dir_all(top.path().join("go")).unwrap();
            fs::write(top.path().join("stay"), "x").unwrap();
            for path in &paths {
                fs::create_dir_all(top.path().join("go").join(path)).unwrap();
                fs::write(top.path().join("go").join(path).join("file"), "x").unwrap();
                let _ = std::os::unix::fs::symlink(top.path(), top.path().join("go").join(path).join("link"));
            }
            let open = fs::File::open(top.path()).unwrap();
            prop_assert!(folder(open.as_fd(), "/go").unwrap());
            prop_assert!(!folder(open.as_fd(), "/go").unwrap());
            prop_assert!(!top.path().join("go").exists() && top.path().join("stay").exists());
        }
    }

    #[test]
    fn a_link_a_file_and_the_whole_are_no_folders_to_remove() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.path().join("link")).unwrap();
        fs::write(top.path().join("file"), "x").unwrap();
        let open = fs::File::open(top.path()).unwrap();
        for path in ["/link", "/link/x", "/file", "", "/"] {
            assert!(folder(open.as_fd(), path).is_err(), "{path}");
        }
        assert!(top.path().join("real").exists());
    }
}
