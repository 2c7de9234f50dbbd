//! The writable layer of an instance, as a snapshot reads it.

use super::entry::{Ids, bytes_per_file};
use super::folder::open_folder;
use super::image::Layer;
use super::place::open;
use super::tree::Copy;
use crate::disk::make_tmpfs;
use crate::drives::on_own_thread;
use crate::error::SnapshotError;
use crate::file_system::top;
use crate::process::root_of;
use crate::sys;
use crate::volumes::CloneSource;
use crate::written::Written;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, fstatvfs, mkdirat, statvfs};
use rustix::io::Errno;
use rustix::mount::{
    MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree,
};
use rustix::process::chdir;
use std::ffi::CString;
use std::io;
use std::path::Path;
use std::time::Duration;

/// The most disk space that a file takes besides its content and its inode.
const BLOCK_BYTES: u64 = 4_096;

/// Where an instance's written files are read from.
pub(crate) enum Source {
    /// A disk that is cloned.
    Disk(CloneSource),
    Files(Files),
}

/// Files that are copied one by one.
pub(crate) enum Files {
    /// The layer that the instance writes into.
    Layer(Written),
    /// All that the instance sees, used when its layer is not open here because an earlier node
    /// started it, or when the snapshot cannot lie over what the instance started from. What is
    /// copied is what differs from the layers below.
    Whole {
        top: OwnedFd,
        /// The outside id of its root.
        root: u32,
        /// A mount of the layers that the snapshot will lie over.
        below: OwnedFd,
        /// How much there is between those and what the instance writes into.
        more_bytes: u64,
    },
}

impl Files {
    /// Opens the tree of an instance's process. `layers`, topmost first, are what the snapshot will
    /// lie over, `more_bytes` is how much there is between those and what the instance writes into,
    /// and `empty` is an empty folder.
    pub(crate) fn whole(
        pid: i32,
        layers: &[Layer],
        empty: &Path,
        more_bytes: u64,
    ) -> io::Result<Self> {
        let below = on_own_thread(|| {
            below(layers, empty).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        let (top, root) = (open(Path::new(&format!("/proc/{pid}/root")))?, root_of(pid)?);
        Ok(Self::Whole { top, root, below, more_bytes })
    }

    /// Returns the most disk space that a copy in this folder can take, if the original does not
    /// grow.
    pub(super) fn bytes_at_most(&self, folder: &Path) -> io::Result<u64> {
        let bytes_per_file = BLOCK_BYTES.saturating_add(bytes_per_file(&statvfs(folder)?));
        let (used, more_bytes) = match self {
            Self::Layer(written) => (fstatvfs(top(written.mount.as_fd())?)?, 0),
            // For an overlay this is about its writable layer.
            Self::Whole { top, more_bytes, .. } => (fstatvfs(top)?, *more_bytes),
        };
        let content = used.f_blocks.saturating_sub(used.f_bfree).saturating_mul(used.f_frsize);
        let files = used.f_files.saturating_sub(used.f_ffree);
        Ok(content.saturating_add(files.saturating_mul(bytes_per_file)).saturating_add(more_bytes))
    }

    /// Copies everything into a new folder, and returns the size of the copy.
    pub(super) fn copy_to(
        &self,
        folder: &Path,
        still: impl FnOnce(
            &mut dyn FnMut() -> Result<(), SnapshotError>,
        ) -> Result<Duration, SnapshotError>,
    ) -> Result<(u64, Duration), SnapshotError> {
        mkdirat(CWD, folder, Mode::from_raw_mode(0o700)).map_err(io::Error::from)?;
        let (into, at_most) = (open(folder)?, self.bytes_at_most(folder)?);
        let (from, root, below) = match self {
            Self::Layer(written) => {
                let upper = open_folder(&top(written.mount.as_fd())?, Path::new("upper"))?;
                (upper.ok_or(io::ErrorKind::NotFound).map_err(io::Error::from)?, written.root, None)
            }
            Self::Whole { top: all, root, below, .. } => {
                let all = rustix::io::fcntl_dupfd_cloexec(all, 0).map_err(io::Error::from)?;
                (all, *root, Some(top(below.as_fd())?))
            }
        };
        let mut copy = Copy::new(&from, &into, Ids { root }, below.as_ref(), at_most)?;
        copy.look(true)?;
        let paused = still(&mut || copy.look(false))?;
        let size = copy.finish()?;
        Ok((size.bytes, paused))
    }
}

/// Mounts these layers as one tree. The calling thread gets its own mount namespace, because the
/// kernel makes overlays only of layers that are attached somewhere.
fn below(layers: &[Layer], empty: &Path) -> io::Result<OwnedFd> {
    sys::leave_mounts()?;
    let places = make_tmpfs(&[], MountAttrFlags::empty())?;
    move_mount(&places, "", CWD, empty, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    let mut lower = Vec::new();
    for (number, layer) in layers.iter().enumerate() {
        let place = empty.join(number.to_string());
        mkdirat(CWD, &place, Mode::from_raw_mode(0o700))?;
        lower.push(open(&layer.attach(&place)?)?);
    }
    // A read-only overlay needs at least two layers.
    let none = empty.join("none");
    mkdirat(CWD, &none, Mode::from_raw_mode(0o700))?;
    lower.push(open(&none)?);
    // As the guest names them, for the same reasons.
    chdir("/proc/self/fd")?;
    let names: Vec<String> = lower.iter().map(|layer| layer.as_raw_fd().to_string()).collect();
    let options = CString::new(format!("lowerdir={},userxattr", names.join(":")))?;
    let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("holm", &none, "overlay", flags, &*options)?;
    let taken = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(open_tree(CWD, &none, taken)?)
}
