//! The file systems that the node makes for an instance: its writable layer, the views of its
//! image, its devices.
//!
//! None of them is attached to the machine's own tree. They are gone when the last process and
//! descriptor are.

use crate::sys;
use crate::users::IDS_PER_INSTANCE;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, XattrFlags, chmodat, chownat, fchmod, fchown,
    fsetxattr, makedev, mkdirat, mknodat, openat, symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, open_tree,
};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// The number of inodes for each MB. A file takes at least one page, so no more fit anyway.
const FILES_PER_MB: u64 = 256;
const FILES_AT_LEAST: u64 = 1_024;

/// Character devices with their numbers.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];
const DEVICE_FOLDERS: [&str; 3] = ["pts", "shm", "mqueue"];

/// Returns how many files fit into a layer in memory.
fn files_for(size_mb: u32) -> u64 {
    FILES_AT_LEAST + u64::from(size_mb) * FILES_PER_MB
}

/// The most output of the first process that is kept.
pub(crate) const CONSOLE_BYTES: u64 = 1 << 20;

const FOLDER: Mode = Mode::from_raw_mode(0o755);
/// Where an instance's `/etc` is in its writable layer.
const ETC: &str = "upper/etc";

/// Makes a writable layer in memory, of limited size. The files for its `/etc`, given as name and
/// text, are written before anything runs.
pub(crate) fn make_layer(size_mb: u32, root: u32, etc: &[(&str, String)]) -> io::Result<OwnedFd> {
    let owner = root.to_string();
    let options = [
        ("size", format!("{size_mb}m")),
        ("nr_inodes", files_for(size_mb).to_string()),
        ("mode", "0755".to_owned()),
        ("uid", owner.clone()),
        ("gid", owner),
    ];
    let mount = make_tmpfs(&options, MountAttrFlags::MOUNT_ATTR_NODEV)?;
    fill(mount.as_fd(), root, etc)?;
    Ok(mount)
}

/// Returns true if a writable layer can be in memory: with the rights of an instance, an overlay
/// notes in such attributes what was removed of the layers below. Kernels before 6.6 keep them only
/// on disks.
pub fn layers_fit_memory() -> io::Result<bool> {
    let mount = make_tmpfs(&[("size", "64k".to_owned())], MountAttrFlags::MOUNT_ATTR_NODEV)?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(&mount, ".", flags, Mode::empty())?;
    match fsetxattr(&folder, "user.overlay.opaque", b"y", XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes an empty folder in memory, of limited size. Nothing in it can be executed.
pub(crate) fn make_memory_folder(size_mb: u32, root: u32) -> io::Result<OwnedFd> {
    let owner = root.to_string();
    let options = [
        ("size", format!("{size_mb}m")),
        ("nr_inodes", (u64::from(size_mb) * FILES_PER_MB).to_string()),
        ("mode", "0755".to_owned()),
        ("uid", owner.clone()),
        ("gid", owner),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    make_tmpfs(&options, attributes)
}

/// Makes the folders of a fresh layer, and the files of its `/etc`.
pub(crate) fn fill(layer: BorrowedFd<'_>, root: u32, etc: &[(&str, String)]) -> io::Result<()> {
    for folder in ["upper", "work", ETC] {
        mkdirat(layer, folder, FOLDER)?;
        // The umask of this process may have taken bits away.
        chmodat(layer, folder, FOLDER, AtFlags::empty())?;
        chown(layer, folder, root)?;
    }
    etc.iter().try_for_each(|(name, text)| put(layer, &Path::new(ETC).join(name), text, root))
}

/// Makes the file for the output of the first process. It is separate from the writable layer, so
/// that a full disk does not stop output; when this file is full, writing to it fails.
pub(crate) fn make_console(root: u32) -> io::Result<OwnedFd> {
    let mount =
        make_tmpfs(&[("size", CONSOLE_BYTES.to_string())], MountAttrFlags::MOUNT_ATTR_NODEV)?;
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
    let console = openat(&mount, "console", flags, Mode::from_raw_mode(0o600))?;
    chown(mount.as_fd(), "console", root)?;
    Ok(console)
}

/// Makes a view of an unpacked layer for the instance: read-only, and owned by the ids of its user
/// namespace.
pub(crate) fn view_layer(folder: &Path, users: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let view = open_tree(CWD, folder, flags)?;
    sys::shift_owners(view.as_fd(), users)?;
    Ok(view)
}

/// Makes the devices of an instance. They belong to the machine's root, so the instance can use
/// them but not change them.
pub(crate) fn make_devices() -> io::Result<OwnedFd> {
    let options = [("size", "64k".to_owned()), ("mode", "0755".to_owned())];
    let mount = make_tmpfs(
        &options,
        MountAttrFlags::MOUNT_ATTR_NOEXEC | MountAttrFlags::MOUNT_ATTR_NOSUID,
    )?;
    for (name, major, minor) in DEVICES {
        let mode = Mode::from_raw_mode(0o666);
        mknodat(&mount, name, FileType::CharacterDevice, mode, makedev(major, minor))?;
        // The umask of this process took bits away.
        chmodat(&mount, name, mode, AtFlags::empty())?;
    }
    for (target, name) in DEVICE_LINKS {
        symlinkat(target, &mount, name)?;
    }
    for folder in DEVICE_FOLDERS {
        mkdirat(&mount, folder, FOLDER)?;
    }
    Ok(mount)
}

pub(crate) fn make_tmpfs(
    options: &[(&str, String)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, value.as_str())?;
    }
    fsconfig_create(context.as_fd())?;
    Ok(fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Writes a file into a fresh layer, into which nobody else can have put anything yet.
fn put(at: BorrowedFd<'_>, path: &Path, text: &str, root: u32) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let mut file = File::from(openat(at, path, flags, mode)?);
    file.write_all(text.as_bytes())?;
    fchmod(&file, mode)?;
    Ok(fchown(&file, Some(Uid::from_raw(root)), Some(Gid::from_raw(root)))?)
}

fn chown(at: BorrowedFd<'_>, path: impl AsRef<Path>, root: u32) -> io::Result<()> {
    debug_assert!(root.checked_add(IDS_PER_INSTANCE).is_some());
    let (uid, gid) = (Uid::from_raw(root), Gid::from_raw(root));
    Ok(chownat(at, path.as_ref(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
}
