//! What a file has besides its content: owners, permissions, times, extended attributes.

use super::folder::kind;
use crate::sparse::BLOCK_BYTES;
use crate::users::IDS_PER_INSTANCE;
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, StatVfs, Statx, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, makedev, mknodat, utimensat,
};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::io;

/// The owner of files that belong to no id of the instance.
const NOBODY: u32 = 65_534;
const CAPABILITIES: &[u8] = b"security.capability";
const RIGHTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
const OF_USERS: &[u8] = b"user.";
/// Attributes in which an overlay notes something about this one mount of it.
const OF_THE_MOUNT: [&[u8]; 4] =
    [b"user.overlay.origin", b"user.overlay.impure", b"user.overlay.nlink", b"user.overlay.upper"];
/// The kernel's limits.
const NAMES_BYTES_MAX: usize = 64 << 10;
const VALUE_BYTES_MAX: usize = 64 << 10;
/// How much disk space a file without content is counted as, at least.
pub(super) const BYTES_PER_FILE_MIN: u64 = 4_096;
/// The kernel's format of file capabilities that apply for any user namespace, and its flag for
/// "effective".
const CAPABILITIES_OF_ANY_ROOT: u32 = 0x0200_0000;
const CAPABILITIES_EFFECTIVE: u32 = 1;
const CAPABILITIES_BYTES: usize = 20;
/// The format of an access control list: its header, its entries, and the kinds of entries that
/// name a user or a group.
const RIGHTS_HEAD_BYTES: usize = 4;
const RIGHT_BYTES: usize = 8;
const OF_SOMEBODY: [u16; 2] = [0x02, 0x08];

/// Translates owners of files from how the machine sees them to how the instance does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    /// The outside id of the instance's root.
    pub(super) root: u32,
}

impl Ids {
    /// Returns the id as the instance sees it.
    fn inside(self, id: u32) -> u32 {
        id.checked_sub(self.root).filter(|id| *id < IDS_PER_INSTANCE).unwrap_or(NOBODY)
    }
}

/// Returns true if this is an overlay's mark that the entry below is removed.
pub(super) fn is_whiteout(stat: &Statx) -> bool {
    kind(stat) == FileType::CharacterDevice && (stat.stx_rdev_major, stat.stx_rdev_minor) == (0, 0)
}

/// Returns how much disk space a file is counted as besides its content. Where a file system has a
/// fixed number of inodes, that is its part of the disk: whoever has a share of the space could
/// otherwise take all inodes.
pub(super) fn bytes_per_file(all: &StatVfs) -> u64 {
    let bytes = all.f_blocks.saturating_mul(all.f_frsize);
    bytes.checked_div(all.f_files).unwrap_or(0).max(BYTES_PER_FILE_MIN)
}

/// Returns how much disk space a file takes.
pub(super) fn bytes_of(stat: &Statx, bytes_per_file: u64) -> u64 {
    // A file with several names is counted once.
    let content = stat.stx_blocks * BLOCK_BYTES / u64::from(stat.stx_nlink.max(1));
    let is_folder = kind(stat) == FileType::Directory;
    bytes_per_file + if is_folder { stat.stx_blocks * BLOCK_BYTES } else { content }
}

/// Returns true if a file of a lower layer and one of the instance differ in nothing but perhaps
/// their content.
pub(super) fn is_alike(lower: &Statx, stat: &Statx, ids: Ids) -> bool {
    let of_lower = (lower.stx_mode, lower.stx_uid, lower.stx_gid);
    let size = |stat: &Statx| if kind(stat) == FileType::Directory { 0 } else { stat.stx_size };
    of_lower == (stat.stx_mode, ids.inside(stat.stx_uid), ids.inside(stat.stx_gid))
        && size(lower) == size(stat)
}

pub(super) fn times(stat: &Statx) -> Timestamps {
    let time =
        |at: rustix::fs::StatxTimestamp| Timespec { tv_sec: at.tv_sec, tv_nsec: at.tv_nsec.into() };
    Timestamps { last_access: time(stat.stx_atime), last_modification: time(stat.stx_mtime) }
}

/// Makes a pipe or a whiteout.
pub(super) fn make_node(folder: &OwnedFd, name: &OsStr, stat: &Statx) -> io::Result<()> {
    Ok(mknodat(folder, name, kind(stat), Mode::from_raw_mode(0o600), makedev(0, 0))?)
}

pub(super) fn make_whiteout(folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0);
    Ok(mknodat(folder, name, FileType::CharacterDevice, mode, makedev(0, 0))?)
}

/// Sets owner, permissions and times of an entry that cannot be opened.
pub(super) fn dress_name(folder: &OwnedFd, name: &OsStr, stat: &Statx, ids: Ids) -> io::Result<()> {
    let (uid, gid) = owners(stat, ids);
    chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    if kind(stat) != FileType::Symlink {
        rustix::fs::chmodat(folder, name, mode(stat), AtFlags::empty())?;
    }
    Ok(utimensat(folder, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Gives a file or folder the owner, permissions and attributes of another.
pub(super) fn dress(from: &OwnedFd, into: &OwnedFd, stat: &Statx, ids: Ids) -> io::Result<()> {
    let (uid, gid) = owners(stat, ids);
    fchown(into, Some(uid), Some(gid))?;
    // This comes after the owner, because changing the owner clears some permissions.
    fchmod(into, mode(stat))?;
    let wanted = attributes(from)?;
    for name in attributes(into)? {
        if !wanted.contains(&name) {
            ignore_missing(fremovexattr(into, &name))?;
        }
    }
    for name in wanted {
        let mut value = vec![0; VALUE_BYTES_MAX];
        match fgetxattr(from, &name, &mut value[..]) {
            Ok(length) => value.truncate(length),
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error.into()),
        }
        let value = translated(name.to_bytes(), value, ids);
        fsetxattr(into, &name, &value, XattrFlags::empty())?;
    }
    Ok(())
}

fn owners(stat: &Statx, ids: Ids) -> (Uid, Gid) {
    (Uid::from_raw(ids.inside(stat.stx_uid)), Gid::from_raw(ids.inside(stat.stx_gid)))
}

fn mode(stat: &Statx) -> Mode {
    Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777)
}

/// Returns the names of the attributes that go into a copy.
fn attributes(file: &OwnedFd) -> io::Result<Vec<CString>> {
    let names = attribute_names(file)?.into_iter();
    Ok(names.filter(|name| is_copied(name.to_bytes())).collect())
}

/// Returns the names of all attributes that a file has.
pub(super) fn attribute_names(file: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = vec![0; NAMES_BYTES_MAX];
    let length = match flistxattr(file, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    names.truncate(length);
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| Ok(CString::new(name)?)).collect()
}

fn is_copied(name: &[u8]) -> bool {
    let kept = name.starts_with(OF_USERS) || name == CAPABILITIES || RIGHTS.contains(&name);
    kept && !OF_THE_MOUNT.contains(&name)
}

fn ignore_missing(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Err(Errno::NODATA) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Translates ids in a value to how the instance sees them.
fn translated(name: &[u8], value: Vec<u8>, ids: Ids) -> Vec<u8> {
    if name == CAPABILITIES {
        return without_root(value);
    }
    if RIGHTS.contains(&name) {
        return rights_inside(value, ids);
    }
    value
}

/// Makes capabilities count for the root of any instance that has the copy.
fn without_root(mut value: Vec<u8>) -> Vec<u8> {
    let Some((head, _)) = value.split_first_chunk_mut::<4>() else { return value };
    let effective = u32::from_le_bytes(*head) & CAPABILITIES_EFFECTIVE;
    *head = (CAPABILITIES_OF_ANY_ROOT | effective).to_le_bytes();
    value.truncate(CAPABILITIES_BYTES);
    value
}

fn rights_inside(mut value: Vec<u8>, ids: Ids) -> Vec<u8> {
    let Some(entries) = value.get_mut(RIGHTS_HEAD_BYTES..) else { return value };
    for entry in entries.chunks_exact_mut(RIGHT_BYTES) {
        if let [tag_low, tag_high, _, _, id @ ..] = entry
            && OF_SOMEBODY.contains(&u16::from_le_bytes([*tag_low, *tag_high]))
            && let Ok(raw) = <[u8; 4]>::try_from(&*id)
        {
            id.copy_from_slice(&ids.inside(u32::from_le_bytes(raw)).to_le_bytes());
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_value_is_trouble(value in prop::collection::vec(any::<u8>(), 0..80), root: u32) {
            let ids = Ids { root };
            let long = translated(RIGHTS[0], value.clone(), ids);
            prop_assert_eq!(long.len(), value.len());
            prop_assert!(translated(CAPABILITIES, value.clone(), ids).len() <= value.len());
        }

        #[test]
        fn ids_are_those_of_the_instance(root in 1_u32..2_000_000_000, id: u32) {
            let inside = Ids { root }.inside(id);
            prop_assert!(inside < IDS_PER_INSTANCE);
            if (root..root + IDS_PER_INSTANCE).contains(&id) {
                prop_assert_eq!(inside, id - root);
            }
        }
    }

    #[test]
    fn a_file_counts_as_its_part_of_the_inodes() {
        let folder = tempfile::tempdir().unwrap();
        let counted = |mb: u64, files| {
            let all = rustix::fs::statvfs(folder.path()).unwrap();
            bytes_per_file(&StatVfs { f_frsize: 4_096, f_blocks: mb << 8, f_files: files, ..all })
        };
        assert_eq!(counted(1_024, 65_536), 16_384, "as `mkfs.ext4` makes it");
        assert_eq!(counted(1_024, 1 << 20), 4_096, "there are more inodes than blocks can fill");
        assert_eq!(counted(1_024, 0), 4_096, "there are as many as wanted");
    }

    #[test]
    fn capabilities_lose_the_root_that_they_counted_for() {
        let mut stored = 0x0300_0001_u32.to_le_bytes().to_vec();
        stored.extend([7; 16]);
        stored.extend(2_000_000_000_u32.to_le_bytes());
        let kept = translated(CAPABILITIES, stored, Ids { root: 2_000_000_000 });
        let mut wanted = 0x0200_0001_u32.to_le_bytes().to_vec();
        wanted.extend([7; 16]);
        assert_eq!(kept, wanted);
    }
}
