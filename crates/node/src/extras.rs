//! What only some instances have: files of the machine mounted inside, no network, and handing over
//! what they wrote.

use crate::disk::view_layer;
use crate::error::VolumeError;
use crate::launch::Sort;
use crate::network_pool::Slot;
use crate::scratch::Scratches;
use crate::shared::Stores;
use crate::sys;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmodat, chownat, fchmod, fchown, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use types::instance::{DriveMount, VolumeName};

/// More than any build asks for.
const MOUNTS_MAX: usize = 64;
/// Extra room in the file system around a file in memory.
const FILE_ROOM_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Whether [`crate::Node::written`] returns what the instance writes.
    pub hands_over: bool,
    /// Whether it has no network beyond itself.
    pub is_offline: bool,
    pub mounts: Vec<Mount>,
}

/// Something of the machine that is mounted in an instance.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The mount point, an absolute path without `..` and the like. Made if it is missing.
    pub path: String,
    pub what: Mounted,
}

#[derive(Clone)]
pub enum Mounted {
    /// A file or folder of the machine, read-only, with its owners mapped into the instance.
    Bind(PathBuf),
    /// A file that exists only in memory.
    File { content: Vec<u8>, mode: u32, owner: (u32, u32) },
    /// A folder that outlives the instance: a file system in this file, made if it is missing. Only
    /// one instance may have it at a time.
    Kept { file: PathBuf, size_mb: u32, mode: u32, owner: (u32, u32), read_only: bool },
    /// An existing volume, with its owners mapped into the instance.
    Volume { volume: VolumeName, read_only: bool },
    /// A part of a drive. It is left out if it is not available.
    Drive(DriveMount),
}

/// The content is left out, because it may be secret.
impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(path) => f.debug_tuple("Bind").field(path).finish(),
            Self::File { .. } => f.debug_struct("File").finish_non_exhaustive(),
            Self::Kept { file, .. } => f.debug_tuple("Kept").field(file).finish(),
            Self::Volume { volume, .. } => f.debug_tuple("Volume").field(volume).finish(),
            Self::Drive(mount) => f.debug_tuple("Drive").field(mount).finish(),
        }
    }
}

/// What an instance wrote over its layers. It is freed once both this value and the instance are
/// gone.
#[derive(Debug)]
pub struct Written {
    pub(crate) mount: OwnedFd,
    /// The user id that the instance's root has outside.
    pub root: u32,
}

impl Written {
    /// Returns the upper folder of the instance's overlay. Valid as long as this value lives.
    pub fn upper(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/upper", self.mount.as_raw_fd()))
    }

    pub(crate) fn copy(&self) -> io::Result<Self> {
        Ok(Self { mount: rustix::io::fcntl_dupfd_cloexec(&self.mount, 0)?, root: self.root })
    }
}

/// A mount that is attached nowhere yet.
pub(crate) struct Made {
    pub(crate) mount: OwnedFd,
    pub(crate) sort: Sort,
}

impl Extras {
    pub(crate) fn is_none(&self) -> bool {
        !self.hands_over && !self.is_offline && self.mounts.is_empty()
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &VolumeName> {
        self.mounts.iter().filter_map(|mount| match &mount.what {
            Mounted::Volume { volume, .. } => Some(volume),
            _ => None,
        })
    }

    pub(crate) fn fits(&self, has_place: impl Fn(&str) -> bool) -> bool {
        self.mounts.len() <= MOUNTS_MAX && self.mounts.iter().all(|mount| has_place(&mount.path))
    }
}

impl Mount {
    /// Whether the instance starts without this mount if it cannot be made, because others may have
    /// removed the source.
    pub(crate) fn may_be_missing(&self) -> bool {
        matches!(self.what, Mounted::Drive(_))
    }

    pub(crate) fn make(&self, stores: &Stores, slot: &Slot) -> Result<Made, VolumeError> {
        let volumes = &stores.volumes;
        Ok(match &self.what {
            Mounted::Drive(mount) => {
                let view = stores.drives.view(volumes, mount, slot.users.as_fd());
                Made { mount: view.map_err(io::Error::other)?, sort: Sort::Shared }
            }
            Mounted::Volume { volume, read_only } => {
                finish(volumes.attach(volume)?, *read_only, slot)?
            }
            Mounted::Bind(path) => Made {
                sort: match std::fs::symlink_metadata(path)?.is_dir() {
                    true => Sort::Folder,
                    false => Sort::File,
                },
                mount: view_layer(path, slot.users.as_fd())?,
            },
            Mounted::File { content, mode, owner } => {
                let mount = file(content, *mode, (slot.root + owner.0, slot.root + owner.1))?;
                Made { mount, sort: Sort::File }
            }
            Mounted::Kept { file, size_mb, mode, owner, read_only } => {
                let (mount, is_new) = Scratches::open_kept(file, *size_mb)?;
                if is_new {
                    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
                    let (into, none) = (|error: Errno| io::Error::from(error), AtFlags::empty());
                    chownat(&mount, ".", Some(uid), Some(gid), none).map_err(into)?;
                    chmodat(&mount, ".", Mode::from_raw_mode(*mode), none).map_err(into)?;
                }
                finish(mount, *read_only, slot)?
            }
        })
    }
}

/// Maps the owners on a mount into the instance, and makes the mount read-only if wanted.
fn finish(mount: OwnedFd, read_only: bool, slot: &Slot) -> io::Result<Made> {
    sys::share_owners(mount.as_fd(), slot.users.as_fd())?;
    if read_only {
        sys::make_read_only(mount.as_fd())?;
    }
    Ok(Made { mount, sort: Sort::Folder })
}

fn file(content: &[u8], mode: u32, owner: (u32, u32)) -> io::Result<OwnedFd> {
    let size = content.len() + FILE_ROOM_BYTES;
    let options = [("size", size.to_string()), ("mode", "0755".to_owned())];
    let folder = crate::disk::make_tmpfs(&options, MountAttrFlags::MOUNT_ATTR_NODEV)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder, "file", flags, Mode::from_raw_mode(0o600))?);
    file.write_all(content)?;
    fchown(&file, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
    fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(&folder, "file", flags)?;
    sys::make_read_only(mount.as_fd())?;
    Ok(mount)
}
