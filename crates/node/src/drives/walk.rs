//! Walks down to a folder, one folder at a time and without following a link: an instance may plant
//! some on the way.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;

const FOLDER: Mode = Mode::from_raw_mode(0o755);

/// Opens a folder by walking down to it. Missing folders are made if `make` is set.
pub(super) fn walk(top: BorrowedFd<'_>, path: &str, make: bool) -> Result<OwnedFd, Errno> {
    let mut at = openat(top, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    for step in steps(path) {
        at = match step_into(at.as_fd(), step) {
            Err(Errno::NOENT) if make => {
                match mkdirat(&at, step, FOLDER) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                step_into(at.as_fd(), step)?
            }
            found => found?,
        };
    }
    Ok(at)
}

pub(super) fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|step| !step.is_empty())
}

/// Opens a folder in a folder, without following a link.
pub(super) fn step_into(at: BorrowedFd<'_>, step: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(at, step, flags, Mode::empty(), within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;

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
