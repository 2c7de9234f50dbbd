//! Walks down to a folder, one folder at a time and without following a link: an instance may plant
//! some on the way.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat, openat2};
use rustix::io::Errno;

const FOLDER: Mode = Mode::from_raw_mode(0o755);

/// Opens a folder by walking down to it. Missing folders are made if `make` is set.
pub(super) fn walk(top: BorrowedFd<'_>, path: &str, make: bool) -> Result<OwnedFd, Errno> {
    let mut at = openat(top, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for step in steps(path) {
        at = match step_into(at.as_fd(), step) {
            Err(Errno::NOENT) if make => {
                make_folder(at.as_fd(), step)?;
                step_into(at.as_fd(), step)?
            }
            found => found?,
        };
    }
    Ok(at)
}

/// Makes a folder that everybody may read, unless something has this name already.
fn make_folder(at: BorrowedFd<'_>, step: &str) -> Result<(), Errno> {
    match mkdirat(at, step, FOLDER) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(error) => return Err(error),
    }
    // The umask of this process may have taken bits away.
    fchmod(open_step(at, step, OFlags::RDONLY)?, FOLDER)
}

pub(super) fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|step| !step.is_empty())
}

/// Opens a folder in a folder, without following a link.
pub(super) fn step_into(at: BorrowedFd<'_>, step: &str) -> Result<OwnedFd, Errno> {
    open_step(at, step, OFlags::PATH)
}

fn open_step(at: BorrowedFd<'_>, step: &str, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(at, step, flags, Mode::empty(), within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    /// As under a server, whose umask makes files for itself only.
    #[test]
    fn other_users_of_a_drive_can_reach_what_is_in_folders_that_were_made() {
        let folder = tempfile::tempdir().unwrap();
        let top = File::open(folder.path()).unwrap();
        let before = rustix::process::umask(Mode::from_raw_mode(0o077));
        let made = walk(top.as_fd(), "/a/b", true);
        rustix::process::umask(before);
        made.unwrap();
        for path in ["a", "a/b"] {
            let mode = folder.path().join(path).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o755, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_link_and_no_way_up_is_followed(link in "[a-z]{1,8}") {
            let folder = tempfile::tempdir().unwrap();
            std::os::unix::fs::symlink("/", folder.path().join(&link)).unwrap();
            let top = File::open(folder.path()).unwrap();
            prop_assert!(step_into(top.as_fd(), &link).is_err());
            prop_assert!(step_into(top.as_fd(), "..").is_err());
        }
    }
}
