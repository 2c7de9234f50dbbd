//! Makes ready what does not depend on the instance: a small root of its own with everything below
//! `/proc` and `/dev`, and nothing of the machine.

use super::{Doing, Failure};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount,
    mount_bind, mount_bind_recursive, mount_change, mount_remount, move_mount, open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use std::ffi::CString;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use types::start::Rules;

/// A folder that every Linux machine has and that this process does not need.
const PLACE: &str = "/sys";
/// Where layers are attached until the instance is entered, because they must be attached somewhere
/// to become part of an overlay. It stays behind with the small root.
pub(super) const WORKBENCH: &str = "/layers";

const PLAIN: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID
    .union(MountAttrFlags::MOUNT_ATTR_NODEV)
    .union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// The parts that do not depend on the instance.
pub(super) struct Parts {
    pub(super) devices: OwnedFd,
    pub(super) output: OwnedFd,
}

pub(super) fn prepare(rules: &Rules, parts: &Parts) -> Result<(), Failure> {
    make_root(rules, &parts.devices)?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    dup2_stdin(null.doing("open /dev/null")?).doing("take its input")?;
    dup2_stdout(&parts.output).doing("take its output")?;
    dup2_stderr(&parts.output).doing("take its output")?;
    hide(rules)?;
    drop_capabilities(rules)
}

/// Replaces the machine's root. New file systems come first: the kernel grants a new proc only
/// beside a fully visible one.
fn make_root(rules: &Rules, devices: &OwnedFd) -> Result<(), Failure> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).doing("take mounts of its own")?;
    let root = file_system("tmpfs", &[("mode", "0755"), ("size", "64k")], PLAIN)?;
    let proc = file_system("proc", &[], PLAIN)?;
    let most = rules.terminals.to_string();
    let terminals = [("mode", "0620"), ("gid", "5"), ("ptmxmode", "0666"), ("max", &*most)];
    let executable = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let terminals = file_system("devpts", &terminals, executable)?;
    let size = format!("{}m", rules.shared_memory_mb);
    let memory = file_system("tmpfs", &[("mode", "1777"), ("size", &*size)], PLAIN)?;
    let queues = file_system("mqueue", &[], PLAIN)?;

    attach(&root, PLACE)?;
    fchdir(&root).doing("enter its root")?;
    pivot_root(".", ".").doing("change its root")?;
    unmount(".", UnmountFlags::DETACH).doing("leave the machine's root")?;
    chdir("/").doing("enter its root")?;
    for folder in ["/proc", "/dev", WORKBENCH] {
        make_folder(folder)?;
    }
    attach(&proc, "/proc")?;
    attach(devices, "/dev")?;
    attach(&terminals, "/dev/pts")?;
    attach(&memory, "/dev/shm")?;
    attach(&queues, "/dev/mqueue")
}

fn hide(rules: &Rules) -> Result<(), Failure> {
    let sealed = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    for file in &rules.hidden_files {
        if_there(mount_bind("/dev/null", &**file)).doing(format!("hide {file}"))?;
    }
    for folder in &rules.hidden_folders {
        let covered = mount("tmpfs", &**folder, "tmpfs", sealed, None);
        if_there(covered).doing(format!("hide {folder}"))?;
    }
    for place in &rules.read_only {
        // A bind mount ignores these flags until it is remounted.
        let frozen = mount_bind_recursive(&**place, &**place)
            .and_then(|()| mount_remount(&**place, MountFlags::BIND | sealed, c""));
        if_there(frozen).doing(format!("make {place} read-only"))?;
    }
    Ok(())
}

fn if_there(result: Result<(), Errno>) -> Result<(), Errno> {
    if result == Err(Errno::NOENT) { Ok(()) } else { result }
}

fn drop_capabilities(rules: &Rules) -> Result<(), Failure> {
    for bit in (0..u64::BITS).map(|number| 1 << number).filter(|bit| rules.capabilities & bit == 0)
    {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(bit)) {
            // This kernel does not have the capability, and so none above it.
            Err(Errno::INVAL) => break,
            dropped => dropped.doing("drop its capabilities")?,
        }
    }
    Ok(())
}

/// Makes a file system that is attached nowhere yet.
fn file_system(
    kind: &str,
    options: &[(&str, &str)],
    flags: MountAttrFlags,
) -> Result<OwnedFd, Failure> {
    let make = || {
        let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        for (key, value) in options {
            fsconfig_set_string(&context, *key, *value)?;
        }
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)
    };
    make().doing(format!("make its {kind}"))
}

/// Mounts the layers (topmost first) as an overlay that writes into `disk`, and returns the mount.
///
/// By one call for all, because kernels before 6.7 take a long list of layers in no other way. So
/// that even the longest fits, layers are named by their descriptors, relative to the folder of
/// those.
pub(super) fn overlay(layers: &[OwnedFd], disk: &OwnedFd) -> Result<OwnedFd, Failure> {
    for layer in layers.iter().chain([disk]) {
        attach(layer, WORKBENCH)?;
    }
    chdir("/proc/self/fd").doing("enter the folder of its descriptors")?;
    let lower: Vec<String> = layers.iter().map(|layer| layer.as_raw_fd().to_string()).collect();
    let (lower, disk) = (lower.join(":"), disk.as_raw_fd());
    let options = format!("lowerdir={lower},upperdir={disk}/upper,workdir={disk}/work,userxattr");
    let options = CString::new(options).map_err(|_| Errno::INVAL).doing("name its layers")?;
    mount("holm", WORKBENCH, "overlay", MountFlags::NODEV, &*options).doing("make its overlay")?;
    open_tree(CWD, WORKBENCH, OpenTreeFlags::OPEN_TREE_CLOEXEC).doing("take its overlay")
}

pub(super) fn attach(mount: impl AsFd, at: &str) -> Result<(), Failure> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, "", CWD, at, flags).doing(format!("attach a mount at {at}"))
}

/// Makes a folder if nothing is there.
pub(super) fn make_folder(path: &str) -> Result<(), Failure> {
    match DirBuilder::new().mode(0o755).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made.doing(format!("make the folder {path}")),
    }
}
