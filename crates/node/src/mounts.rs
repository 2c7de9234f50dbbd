//! Makes what an instance has mounted in addition to its layers and folders.

use crate::disk::view_layer;
use crate::error::VolumeError;
use crate::extras::{Mount, Mounted};
use crate::network_pool::Slot;
use crate::scratch::Scratches;
use crate::shared::Stores;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, chmodat, chownat, fchmod, fchown, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};
use std::fs::File;
use std::io::{self, Write};
use types::start::Sort;

/// Extra room in the file system around a file in memory.
const FILE_ROOM_BYTES: usize = 64 << 10;

/// A mount that is attached nowhere yet.
pub(crate) struct Made {
    pub(crate) mount: OwnedFd,
    pub(crate) sort: Sort,
}

impl Mount {
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
