//! Finds out what a machine offers for instances.

use crate::cgroup;
use crate::disk;
use crate::drives::on_own_thread;
use crate::file_system;
use crate::launch::tool::ROOT_FOLDER;
use crate::net::NFT;
use crate::pool;
use crate::scratch;
use crate::sys;
use crate::users::make_users;
use rustix::fd::AsFd;
use rustix::fs::{Access, CWD, access};
use rustix::mount::{
    FsOpenFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsopen,
    move_mount,
};
use std::fs::read_to_string;
use std::io;
use std::path::Path;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: &'static str,
    /// Whether no instance can be made without it.
    pub needed: bool,
    /// What to do if it is missing, for something that instances can be made without.
    pub help: &'static str,
    pub works: bool,
    pub detail: String,
}

/// Tries the parts of an instance one by one, with layers in a folder, which need not exist yet.
/// Leaves nothing behind.
pub fn probe(layers: &Path) -> Vec<Finding> {
    let try_out = |what, help, result| finding(what, Some(help), result);
    let mut found = probe_needed(layers);
    found.extend([
        try_out("files of sandboxes in memory", MEMORY_HELP, files_in_memory()),
        try_out("firewall (nft)", FIREWALL_HELP, firewall()),
        try_out(
            "folders of limited size (mkfs.ext4, loop devices)",
            FOLDERS_HELP,
            scratch::try_out(PROBE_ROOT),
        ),
        try_out("volumes that grow while they are used (mkfs.xfs)", GROWTH_HELP, growing_volumes()),
        try_out("another program to start instances (runc)", RUNC_HELP, runc()),
        try_out("memory that can be written out (swap)", SWAP_HELP, swap()),
    ]);
    found
}

/// Tries only the parts that no instance can be made without.
pub fn probe_needed(layers: &Path) -> Vec<Finding> {
    let need = |what, result| finding(what, None, result);
    let made =
        |result: io::Result<_>| result.map(|_: rustix::fd::OwnedFd| "can be made".to_owned());
    vec![
        need("control groups", control_groups()),
        need("user namespaces", made(within_limit("user", make_users(PROBE_ROOT)))),
        need("network namespaces", within_limit("net", network_namespace())),
        need("devices", made(disk::make_devices())),
        need("layers with shifted owners", shifted_layers(layers)),
    ]
}

/// Names the limit that the kernel means when it makes no namespace for lack of "space".
fn within_limit<T>(kind: &str, made: io::Result<T>) -> io::Result<T> {
    made.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSPC) => {
            let limit = format!("user.max_{kind}_namespaces");
            let why = format!("the machine's limit is reached: raise it with sysctl {limit}");
            io::Error::new(error.kind(), why)
        }
        _ => error,
    })
}

/// Checks how files are cloned on the disk of a node's folder, which need not exist yet.
pub fn probe_clones(folder: &Path) -> Finding {
    let what = "snapshots and volumes that cost what changed (clones of files)";
    finding(what, Some(CLONES_HELP), pool::outlook(folder))
}

fn finding(what: &'static str, help: Option<&'static str>, result: io::Result<String>) -> Finding {
    let (works, detail) =
        result.map_or_else(|error| (false, error.to_string()), |detail| (true, detail));
    Finding { what, needed: help.is_none(), help: help.unwrap_or_default(), works, detail }
}

const CLONES_HELP: &str = "apt-get install xfsprogs, before the first sandbox with a disk is made; without it, snapshots of disks and \
     volumes of templates are copies";
const MEMORY_HELP: &str = "what sandboxes write is on the disk without it, each on one of its own: use Linux 6.6 or later";
const FIREWALL_HELP: &str = "apt-get install nftables";
const FOLDERS_HELP: &str = "apt-get install e2fsprogs, and modprobe loop; without them, tasks that have ephemeral volumes do not start";
const GROWTH_HELP: &str = "apt-get install xfsprogs; without it, volumes are ext4, which grow while they are mounted only where the \
     server has CAP_SYS_RESOURCE";
const RUNC_HELP: &str = "apt-get install runc, if `node.backend` is to be \"runc\"";
const SWAP_HELP: &str = "sandboxes that sleep keep their memory without it: make a swap file with fallocate -l 8G /swapfile, \
     chmod 600 /swapfile, mkswap /swapfile and swapon /swapfile, and name it in /etc/fstab";

/// Ids far above those of any user, for a namespace in which nothing runs.
const PROBE_ROOT: u32 = 4_000_000_000;

fn control_groups() -> io::Result<String> {
    let (version, tree) = match cgroup::version() {
        Some(cgroup::Version::V1) => ("version 1", "/sys/fs/cgroup/pids"),
        Some(cgroup::Version::V2) => ("version 2", "/sys/fs/cgroup"),
        None => {
            return Err(io::Error::other("no control groups with memory, cpu, pids and freezer"));
        }
    };
    access(tree, Access::WRITE_OK).map_err(|error| {
        let why = format!(
            "{tree} cannot be written ({error}): a container needs --privileged, or a mount of its \
             own of that folder"
        );
        io::Error::new(io::Error::from(error).kind(), why)
    })?;
    Ok(version.to_owned())
}

/// Runs on a thread of its own, which ends in the namespace that it made.
fn network_namespace() -> io::Result<String> {
    std::thread::spawn(sys::leave_network)
        .join()
        .map_err(|_| io::Error::other("the attempt failed"))??;
    Ok("can be made".to_owned())
}

/// Checks whether the disk of this folder can have the layers of instances.
fn shifted_layers(folder: &Path) -> io::Result<String> {
    let there = folder.ancestors().find(|above| above.exists() && !above.as_os_str().is_empty());
    let there = there.unwrap_or(Path::new("."));
    show_shifted(there).map_err(|error| {
        let why = format!(
            "the disk of {} cannot show files with other owners ({error}): give `data.folder` and \
             `images.folder` a disk with ext4, XFS or btrfs",
            there.display()
        );
        io::Error::new(error.kind(), why)
    })?;
    Ok("can be shown".to_owned())
}

/// Makes an overlay of a layer with shifted owners, as each instance has one.
fn show_shifted(layer: &Path) -> io::Result<()> {
    let users = within_limit("user", make_users(PROBE_ROOT))?;
    let view = disk::view_layer(layer, users.as_fd())?;
    on_own_thread(|| {
        sys::leave_mounts()?;
        move_mount(&view, "", CWD, ROOT_FOLDER, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // An overlay that is only read needs at least two layers.
        fsconfig_set_string(&context, "lowerdir", format!("{ROOT_FOLDER}:/etc"))?;
        fsconfig_set_flag(&context, "userxattr")?;
        fsconfig_create(&context)
    })?;
    Ok(())
}

fn files_in_memory() -> io::Result<String> {
    if disk::layers_fit_memory()? {
        Ok("can be kept".to_owned())
    } else {
        Err(io::Error::other("the kernel's tmpfs has no user attributes"))
    }
}

fn firewall() -> io::Result<String> {
    let found = NFT.iter().find(|path| Path::new(path).exists());
    found
        .map(|path| (*path).to_owned())
        .ok_or_else(|| io::Error::other("the package nftables is not installed"))
}

fn growing_volumes() -> io::Result<String> {
    let found = file_system::find("mkfs.xfs");
    found.ok_or_else(|| io::Error::other("the package xfsprogs is not installed"))
}

fn runc() -> io::Result<String> {
    let found =
        ["/usr/sbin/runc", "/usr/bin/runc"].into_iter().find(|path| Path::new(path).exists());
    found.map(str::to_owned).ok_or_else(|| io::Error::other("the package runc is not installed"))
}

fn swap() -> io::Result<String> {
    let areas = read_to_string("/proc/swaps")?.lines().count().saturating_sub(1);
    if areas == 0 {
        Err(io::Error::other("there is no swap"))
    } else {
        Ok(format!("{areas} areas"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_has_an_answer_to_clones() {
        let folder = tempfile::tempdir().unwrap();
        let found = probe_clones(&folder.path().join("not/there/yet"));
        assert_eq!(
            found.works,
            found.detail.contains("data folder clones") || found.detail.contains("XFS in a file")
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_disk_that_cannot_have_layers_is_named() {
        // The kernel shows no files of this kind with other owners.
        let why = shifted_layers(Path::new("/proc/not/there")).unwrap_err().to_string();
        assert!(why.contains("the disk of /proc "), "{why}");
    }

    #[test]
    fn a_limit_on_namespaces_is_named() {
        let why = within_limit::<()>("net", Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert!(why.unwrap_err().to_string().contains("user.max_net_namespaces"));
    }

    #[test]
    fn whatever_can_be_done_without_says_what_brings_it() {
        for finding in probe(Path::new("/usr")) {
            assert_eq!(finding.needed, finding.help.is_empty(), "{finding:?}");
        }
        let swap = probe(Path::new("/usr"))
            .into_iter()
            .find(|finding| finding.what.contains("swap"))
            .unwrap();
        assert!(swap.help.contains("mkswap"), "{swap:?}");
    }
}
