//! Sets owners, modes, times and extended attributes.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::tree::Place;
use crate::settings::{Privileges, Rules};
use crate::tar::Entry;

const SET_ID_BITS: u32 = 0o6000;
const ATTRIBUTES: &[u8] = b"user.";
/// Overlayfs would obey these, so a layer could redirect a folder or make another one opaque.
const OVERLAY_ATTRIBUTES: &[u8] = b"user.overlay.";
const CAPABILITIES: &[u8] = b"security.capability";

pub(super) fn of_file(file: &File, entry: &Entry, rules: &Rules) -> Result<(), Errno> {
    let kept = match rules.privileges {
        Privileges::Drop => !SET_ID_BITS,
        Privileges::Keep => !0,
    };
    // The order matters: changing the owner clears set-id bits and capabilities.
    fs::fchown(file, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))?;
    fs::fchmod(file, Mode::from_raw_mode(entry.mode & kept))?;
    attributes(file.as_fd(), entry, rules)?;
    fs::futimens(file, &times(entry.modified))
}

/// Sets everything but the time, which is set when nothing changes in the folder any more. The
/// set-group-id bit of a folder gives nobody a privilege.
pub(super) fn of_folder(folder: impl AsFd, entry: &Entry, rules: &Rules) -> Result<(), Errno> {
    fs::fchown(&folder, Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))?;
    fs::fchmod(&folder, Mode::from_raw_mode(entry.mode))?;
    attributes(folder.as_fd(), entry, rules)
}

/// Sets the metadata of something that cannot be opened: a symbolic link or a fifo.
pub(super) fn of_place(place: &Place, entry: &Entry, with_mode: bool) -> Result<(), Errno> {
    let (folder, name) = place.at();
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if with_mode {
        // The name was created a moment ago in a folder that only this process can reach, and is
        // not a link.
        fs::chmodat(
            folder,
            name,
            Mode::from_raw_mode(entry.mode & !SET_ID_BITS),
            AtFlags::empty(),
        )?;
    }
    fs::utimensat(folder, name, &times(entry.modified), AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn attributes(file: BorrowedFd<'_>, entry: &Entry, rules: &Rules) -> Result<(), Errno> {
    for (name, value) in &entry.xattrs {
        let user = name.starts_with(ATTRIBUTES) && !name.starts_with(OVERLAY_ATTRIBUTES);
        if user || (name == CAPABILITIES && rules.privileges == Privileges::Keep) {
            fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty())?;
        }
    }
    Ok(())
}
