//! Removes a folder of a drive while instances work in it. No link is followed.

use super::walk::{step_into, walk};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::fs::{openat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;

/// How deep folders are emptied in place: each level needs a descriptor meanwhile. A deeper one is
/// moved to the top of what is removed first.
const DEPTH_MAX: usize = 128;
/// How often a folder is read again because others write into it meanwhile.
const ROUNDS_MAX: usize = 64;
/// How many folders are moved at most, because others may nest new ones all the time.
const MOVED_MAX: usize = 10_000;

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
    Removal { top: folder, moved: 0 }.remove(above.as_fd(), name)?;
    Ok(true)
}

struct Removal {
    /// The folder that is removed.
    top: OwnedFd,
    /// How many folders were moved there.
    moved: usize,
}

impl Removal {
    fn remove(mut self, above: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
        let top = self.top.try_clone().map_err(|_| Errno::MFILE)?;
        let mut rounds = 0;
        while rounds < ROUNDS_MAX {
            let moved = self.moved;
            self.empty(top.as_fd(), DEPTH_MAX)?;
            match unlinkat(above, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::NOTEMPTY) if self.moved > moved => {}
                // Somebody wrote into it meanwhile.
                Err(Errno::NOTEMPTY) => rounds += 1,
                Err(error) => return Err(error),
            }
        }
        Err(Errno::NOTEMPTY)
    }

    fn empty(&mut self, folder: BorrowedFd<'_>, depth: usize) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(folder, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = CString::from(entry.file_name());
            if [c".", c".."].contains(&name.as_c_str()) {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => self.empty_below(folder, &name, depth)?,
                _ => match unlinkat(folder, &name, AtFlags::empty()) {
                    Err(Errno::ISDIR) => self.empty_below(folder, &name, depth)?,
                    removed => gone(removed)?,
                },
            }
        }
        Ok(())
    }

    fn empty_below(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &CString,
        depth: usize,
    ) -> Result<(), Errno> {
        let Some(depth) = depth.checked_sub(1) else { return self.move_up(folder, name) };
        // If it is not a folder any more, the next round removes it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(folder, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            below => self.empty(below?.as_fd(), depth)?,
        }
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::NOTDIR) => Ok(()),
            removed => gone(removed),
        }
    }

    fn move_up(&mut self, from: BorrowedFd<'_>, name: &CString) -> Result<(), Errno> {
        while self.moved < MOVED_MAX {
            self.moved += 1;
            let free = format!(".holm-remove-{}", self.moved);
            match renameat_with(from, name, &self.top, free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                moved => return gone(moved),
            }
        }
        Err(Errno::NOTEMPTY)
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
    fn a_folder_of_any_depth_goes() {
        let top = tempfile::tempdir().unwrap();
        let go = top.path().join("go");
        fs::create_dir(&go).unwrap();
        let open = |at: &OwnedFd| openat(at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut at = OwnedFd::from(fs::File::open(&go).unwrap());
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open(&at);
        }
        let here = fs::File::open(top.path()).unwrap();
        assert!(folder(here.as_fd(), "/go").unwrap());
        assert!(!go.exists());
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
