//! Version 2 of control groups: one tree for all controllers.
//!
//! `tools/test-debian` runs the tests of instances on a machine with this version. Where only
//! version 1 has controllers, as on most machines that run the other tests, groups are made,
//! joined, frozen and killed in a tree without controllers; limits and counters of use are tested
//! with files of the documented form.
//!
//! Unlike version 1 there is no list of devices here. The user namespace, and mounts that ignore
//! device files, keep an instance from devices.

use super::files::{
    MOUNT, make_folder, open_for_writing, read_field, read_number, remove_folder, set_bound,
    set_if_offered,
};
use super::resources::{Bounds, Usage};
use super::wait::wait_until;
use crate::spec::Spec;
use rustix::fd::OwnedFd;
use std::fs::{read_to_string, write};
use std::io;
use std::path::{Path, PathBuf};

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const PERIOD_US: u64 = 100_000;
const CPU: &str = "cpu.max";
const SWAP: &str = "memory.swap.max";

pub(super) fn offered(root: &Path) -> bool {
    read_to_string(root.join("cgroup.controllers")).is_ok_and(|text| has_all(&text))
}

fn has_all(controllers: &str) -> bool {
    CONTROLLERS
        .iter()
        .all(|wanted| controllers.split_whitespace().any(|offered| offered == *wanted))
}

pub(super) fn folder(name: &Path) -> PathBuf {
    Path::new(MOUNT).join(name)
}

pub(super) fn prepare(name: &str, bounds: &Bounds) -> io::Result<()> {
    let (root, folder) = (Path::new(MOUNT), folder(Path::new(name)));
    hand_down(root)?;
    let Bounds { memory_mb, swap_mb, processes } = bounds;
    make_parent(&folder, memory_mb.total, swap_mb.total, processes.total)
}

/// Returns true if the kernel limits the swap of the node's group.
pub(super) fn limits_swap(name: &str) -> bool {
    folder(Path::new(name)).join(SWAP).exists()
}

/// Enables the controllers for the groups below `folder`. They work in a group only if each group
/// above enables them.
fn hand_down(folder: &Path) -> io::Result<()> {
    write(folder.join("cgroup.subtree_control"), "+cpu +memory +pids")
}

pub(super) fn make_owner(folder: &Path, bounds: &Bounds) -> io::Result<()> {
    let Bounds { memory_mb, swap_mb, processes } = bounds;
    make_parent(folder, memory_mb.share, swap_mb.share, processes.share)
}

/// Makes a group that contains other groups, unless it exists. It keeps the processor weight that
/// every new group has.
fn make_parent(folder: &Path, memory_mb: u64, swap_mb: u64, processes: u64) -> io::Result<()> {
    make_folder(folder)?;
    set_bound(&folder.join("memory.max"), memory_mb.saturating_mul(1 << 20))?;
    set_if_offered(&folder.join(SWAP), swap_mb.saturating_mul(1 << 20))?;
    set_bound(&folder.join("pids.max"), processes)?;
    hand_down(folder)
}

pub(super) fn make(folder: &Path, spec: &Spec) -> io::Result<()> {
    std::fs::create_dir(folder)?;
    set_limits(folder, spec)
}

fn set_limits(folder: &Path, spec: &Spec) -> io::Result<()> {
    let memory_bytes = u64::from(spec.memory_mb) << 20;
    // Enough to push out all of its memory while it sleeps.
    set_if_offered(&folder.join(SWAP), memory_bytes)?;
    limits(spec, memory_bytes).iter().try_for_each(|(file, text)| write(folder.join(file), text))
}

fn limits(spec: &Spec, memory_bytes: u64) -> [(&'static str, String); 3] {
    [
        ("memory.max", memory_bytes.to_string()),
        (CPU, quota(spec.cpu_millicores)),
        ("pids.max", spec.pids_max.to_string()),
    ]
}

fn quota(millicores: u32) -> String {
    format!("{} {PERIOD_US}", u64::from(millicores) * PERIOD_US / 1_000)
}

pub(super) fn limit_cpu(folder: &Path, millicores: u32) -> io::Result<()> {
    write(folder.join(CPU), quota(millicores))
}

pub(super) fn lift_cpu_limit(folder: &Path) -> io::Result<()> {
    write(folder.join(CPU), "max")
}

pub(super) fn entrances(folder: &Path) -> io::Result<Vec<OwnedFd>> {
    Ok(vec![open_for_writing(&folder.join("cgroup.procs"))?])
}

pub(super) fn set_frozen(folder: &Path, frozen: bool) -> io::Result<()> {
    write(folder.join("cgroup.freeze"), if frozen { "1" } else { "0" })
}

pub(super) fn frozen(folder: &Path) -> io::Result<bool> {
    Ok(read_field(&folder.join("cgroup.events"), "frozen ")? == 1)
}

pub(super) fn usage(folder: &Path) -> io::Result<Usage> {
    Ok(Usage {
        memory_bytes: read_number(&folder.join("memory.current"))?,
        cpu_us: read_field(&folder.join("cpu.stat"), "usage_usec ")?,
        processes: read_number(&folder.join("pids.current"))?,
        oom_kills: oom_kills(folder)?,
    })
}

pub(super) fn oom_kills(folder: &Path) -> io::Result<u64> {
    read_field(&folder.join("memory.events"), "oom_kill ")
}

pub(super) fn kill(folder: &Path) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    write(folder.join("cgroup.kill"), "1")?;
    wait_until("end the processes of a control group", || {
        Ok(read_field(&folder.join("cgroup.events"), "populated ")? == 0)
    })
}

pub(super) fn remove(folder: &Path) -> io::Result<()> {
    remove_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Group;
    use admission::Limits;
    use std::process::{Child, Command};

    fn spec() -> Spec {
        Spec { memory_mb: 512, cpu_millicores: 250, pids_max: 100, ..Spec::for_tests() }
    }

    fn bounds() -> Bounds {
        Bounds {
            memory_mb: Limits { total: 100, share: 80 },
            swap_mb: Limits { total: 50, share: 40 },
            processes: Limits { total: 7, share: 5 },
        }
    }

    fn text(folder: &Path, file: &str) -> String {
        read_to_string(folder.join(file)).unwrap()
    }

    #[test]
    fn controllers_are_handed_down_to_the_groups_of_instances() {
        let root = tempfile::tempdir().unwrap();
        write(root.path().join("cgroup.controllers"), "cpuset cpu io memory hugetlb pids\n")
            .unwrap();
        assert!(offered(root.path()));
        write(root.path().join("cgroup.controllers"), "cpuset cpuacct memory pids\n").unwrap();
        assert!(!offered(root.path()));
        hand_down(root.path()).unwrap();
        let node = root.path().join("holm");
        let owner = node.join("owner.one");
        for _again in 0..2 {
            make_parent(&node, 100, 50, 7).unwrap();
            make_owner(&owner, &bounds()).unwrap();
        }
        for level in [root.path(), &node, &owner] {
            assert_eq!(text(level, "cgroup.subtree_control"), "+cpu +memory +pids");
        }
        let limits = |level: &Path| ["memory.max", "pids.max"].map(|file| text(level, file));
        assert_eq!(limits(&node), ["104857600", "7"]);
        assert_eq!(limits(&owner), ["83886080", "5"], "an owner has his share");
    }

    #[test]
    fn limits_are_written_in_the_words_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("one");
        make(&folder, &spec()).unwrap();
        assert_eq!(text(&folder, "memory.max"), "536870912");
        assert_eq!(text(&folder, "cpu.max"), "25000 100000");
        assert_eq!(text(&folder, "pids.max"), "100");
        assert!(make(&folder, &spec()).is_err(), "a group belongs to one instance");
    }

    #[test]
    fn swap_is_limited_where_the_kernel_counts_it() {
        let root = tempfile::tempdir().unwrap();
        let set = || {
            make_owner(root.path(), &bounds()).unwrap();
            let owners = read_to_string(root.path().join(SWAP)).ok();
            set_limits(root.path(), &spec()).unwrap();
            (owners, read_to_string(root.path().join(SWAP)).ok())
        };
        assert_eq!(set(), (None, None));
        write(root.path().join(SWAP), "max\n").unwrap();
        let (owners, instances) = ("41943040".to_owned(), "536870912".to_owned());
        assert_eq!(set(), (Some(owners), Some(instances)));
    }

    #[test]
    fn what_was_used_is_read_from_the_words_of_the_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("memory.current", "7340032\n"),
            ("cpu.stat", "usage_usec 81234\nuser_usec 1\nsystem_usec 2\nnr_periods 0\n"),
            ("pids.current", "3\n"),
            ("memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n"),
        ];
        files.iter().for_each(|(file, text)| write(folder.path().join(file), text).unwrap());
        let expected =
            Usage { memory_bytes: 7_340_032, cpu_us: 81_234, processes: 3, oom_kills: 2 };
        assert_eq!(usage(folder.path()).unwrap(), expected);
        write(folder.path().join("cpu.stat"), "user_usec 1\n").unwrap();
        assert!(usage(folder.path()).is_err());
    }

    /// Finds the tree itself, or the one beside version 1.
    fn real_tree() -> Option<PathBuf> {
        let roots = [Path::new(MOUNT).join("unified"), PathBuf::from(MOUNT)];
        roots.into_iter().find(|root| {
            root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists()
        })
    }

    fn joined(folder: &Path) -> Child {
        let join = format!("echo 0 > {}/cgroup.procs; exec sleep 1000", folder.display());
        Command::new("sh").args(["-c", &join]).spawn().unwrap()
    }

    #[test]
    fn a_real_group_is_frozen_thawed_swept_and_removed() {
        let Some(root) = real_tree() else { return };
        let folder = root.join(format!("test-{}", std::process::id()));
        make_folder(&folder).unwrap();
        let group = Group::V2 { folder: folder.clone() };
        assert_eq!(group.entrances().unwrap().len(), 1);
        let mut process = joined(&folder);
        wait_until("join", || Ok(text(&folder, "cgroup.procs").trim() == process.id().to_string()))
            .unwrap();
        group.freeze().unwrap();
        assert!(group.frozen().unwrap());
        group.thaw().unwrap();
        assert!(!group.frozen().unwrap());
        // A frozen group can be swept as well.
        group.freeze().unwrap();
        group.sweep().unwrap();
        assert!(!folder.exists());
        assert!(!process.wait().unwrap().success());
        group.sweep().unwrap();
    }
}
