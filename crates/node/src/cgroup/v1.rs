//! Version 1 of control groups: one tree per controller.

use super::files::{
    MOUNT, make_folder, open_for_writing, read_field, read_number, remove_folder, set_bound,
    set_if_offered,
};
use super::resources::{Bounds, Usage};
use super::wait::{KERNEL_TIMEOUT, PAUSE, wait_at_most, wait_until};
use crate::spec::Spec;
use rustix::fd::OwnedFd;
use std::fs::{read_to_string, write};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Each instance has a group of its own in each of these trees.
const CONTROLLERS: [&str; 5] = ["freezer", "memory", "cpu", "cpuacct", "pids"];
/// All instances share one group in this tree, because the rules are the same for all and making a
/// group takes time.
const DEVICES: &str = "devices";
/// The devices that every instance has, as type, number and rights.
const DEVICE_RULES: [&str; 9] = [
    "c *:* m",
    "b *:* m",
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:* rwm",
    "c 136:* rwm",
];
/// What a new group permits.
const EVERYTHING: &str = "a *:* rwm";
const PERIOD_US: u64 = 100_000;
const MEMORY: &str = "memory.limit_in_bytes";
/// Limits memory and swap together, and is never lower than the limit of memory.
const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";
/// Limits what sockets keep that was sent and not read. This version does not count that as memory
/// of a group, and counts it at all only where this limit is set. It is about UDP too.
const SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";
/// The part of its memory that the sockets of an instance may take besides.
const SOCKETS_PART: u64 = 4;
/// The part that those of all instances may take together. It is a sixteenth, because beyond that
/// the kernel saves on the connections of the whole machine (`net.ipv4.tcp_mem`).
const SOCKETS_PART_OF_ALL: u64 = 16;
/// Less than this would slow down ordinary connections.
const SOCKETS_BYTES_MIN: u64 = 16 << 20;

pub(super) fn offered(root: &Path) -> bool {
    CONTROLLERS.iter().all(|controller| root.join(controller).join("tasks").exists())
}

pub(super) fn folder(controller: &str, name: &Path) -> PathBuf {
    Path::new(MOUNT).join(controller).join(name)
}

/// Returns the folders that make up the group of this name.
pub(super) fn folders(name: &Path) -> Vec<PathBuf> {
    CONTROLLERS.iter().map(|controller| folder(controller, name)).collect()
}

/// The same in all trees: other programs use more of them than the node does.
pub(super) fn folders_everywhere(name: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for tree in std::fs::read_dir(MOUNT)? {
        found.extend(Some(tree?.path().join(name)).filter(|folder| folder.is_dir()));
    }
    Ok(found)
}

pub(super) fn prepare(name: &str, extra_device_rules: &[&str], bounds: &Bounds) -> io::Result<()> {
    let name = Path::new(name);
    let Bounds { memory_mb, swap_mb, processes } = bounds;
    make_parent(name, memory_mb.total, swap_mb.total, processes.total)?;
    if !Path::new(MOUNT).join(DEVICES).join("tasks").exists() {
        return Ok(());
    }
    let devices = folder(DEVICES, name);
    make_folder(&devices)?;
    // An earlier node may have denied everything already, and the kernel does not accept that again
    // once there are groups below.
    if read_to_string(devices.join("devices.list"))?.trim() == EVERYTHING {
        write(devices.join("devices.deny"), "a")?;
    }
    DEVICE_RULES
        .iter()
        .chain(extra_device_rules)
        .try_for_each(|rule| write(devices.join("devices.allow"), rule))
}

pub(super) fn make_owner(name: &Path, bounds: &Bounds) -> io::Result<()> {
    let Bounds { memory_mb, swap_mb, processes } = bounds;
    make_parent(name, memory_mb.share, swap_mb.share, processes.share)
}

/// Returns true if the kernel limits the swap of the node's group.
pub(super) fn limits_swap(name: &str) -> bool {
    folder("memory", Path::new(name)).join(MEMORY_AND_SWAP).exists()
}

/// Makes a group that contains other groups, unless it exists. It keeps the processor weight that
/// every new group has.
fn make_parent(name: &Path, memory_mb: u64, swap_mb: u64, processes: u64) -> io::Result<()> {
    folders(name).iter().try_for_each(|folder| make_folder(folder))?;
    let [memory, swap] = [memory_mb, swap_mb].map(|mb| mb.saturating_mul(1 << 20));
    limit_parent(&folder("memory", name), memory, swap)?;
    limit_sockets(&folder("memory", name), memory / SOCKETS_PART_OF_ALL)?;
    set_bound(&folder("pids", name).join("pids.max"), processes)
}

/// Sets the limits of a group that may have others already.
fn limit_parent(folder: &Path, memory_bytes: u64, swap_bytes: u64) -> io::Result<()> {
    let (memory, both) = (folder.join(MEMORY), folder.join(MEMORY_AND_SWAP));
    // The old limit of both may be lower than the new one of memory.
    set_if_offered(&both, i64::MAX.unsigned_abs())?;
    set_bound(&memory, memory_bytes)?;
    // The limit of memory stays as it was if more is in use.
    let memory_bytes = read_number(&memory)?.max(memory_bytes);
    set_if_offered(&both, memory_bytes.saturating_add(swap_bytes))
}

fn limit_sockets(folder: &Path, bytes: u64) -> io::Result<()> {
    set_if_offered(&folder.join(SOCKETS), bytes.max(SOCKETS_BYTES_MIN))
}

pub(super) fn make(name: &Path, spec: &Spec) -> io::Result<()> {
    for controller in CONTROLLERS {
        // The folder may exist already: where `cpu` and `cpuacct` are one tree, the second finds
        // the folder of the first.
        make_folder(&folder(controller, name))?;
    }
    let bytes = u64::from(spec.memory_mb) << 20;
    let memory = folder("memory", name);
    write(memory.join(MEMORY), bytes.to_string())?;
    // Enough to push out all of its memory while it sleeps.
    set_if_offered(&memory.join(MEMORY_AND_SWAP), bytes)?;
    limit_sockets(&memory, bytes / SOCKETS_PART)?;
    limit_cpu(name, spec.cpu_millicores)?;
    write(folder("pids", name).join("pids.max"), spec.pids_max.to_string())
}

pub(super) fn limit_cpu(name: &Path, millicores: u32) -> io::Result<()> {
    let quota = u64::from(millicores) * PERIOD_US / 1_000;
    write(folder("cpu", name).join("cpu.cfs_quota_us"), quota.to_string())
}

pub(super) fn lift_cpu_limit(name: &Path) -> io::Result<()> {
    write(folder("cpu", name).join("cpu.cfs_quota_us"), "-1")
}

pub(super) fn entrances(name: &Path) -> io::Result<Vec<OwnedFd>> {
    let mut files = folders(name);
    // The devices group is the node's own, however deep the instance's group is below it.
    let shared = name
        .iter()
        .next()
        .map(|node| folder(DEVICES, Path::new(node)))
        .filter(|folder| folder.exists());
    files.extend(shared);
    files.iter().map(|folder| open_for_writing(&folder.join("tasks"))).collect()
}

/// How long one attempt at freezing may take. Usually it takes a tenth of a millisecond.
const ATTEMPT: Duration = Duration::from_millis(20);

/// Freezes a group. If processes come and go in it, it may never get from `FREEZING` to `FROZEN`,
/// and the kernel has to be asked again.
pub(super) fn freeze(name: &Path) -> io::Result<()> {
    let deadline = Instant::now() + KERNEL_TIMEOUT;
    loop {
        set_frozen(name, true)?;
        match wait_at_most(ATTEMPT, "freeze", || frozen(name)) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut && Instant::now() < deadline => {
                set_frozen(name, false)?;
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

pub(super) fn set_frozen(name: &Path, frozen: bool) -> io::Result<()> {
    write(folder("freezer", name).join("freezer.state"), if frozen { "FROZEN" } else { "THAWED" })
}

pub(super) fn frozen(name: &Path) -> io::Result<bool> {
    Ok(read_to_string(folder("freezer", name).join("freezer.state"))?.trim() == "FROZEN")
}

pub(super) fn usage(name: &Path) -> io::Result<Usage> {
    Ok(Usage {
        memory_bytes: read_number(&folder("memory", name).join("memory.usage_in_bytes"))?,
        cpu_us: read_number(&folder("cpuacct", name).join("cpuacct.usage"))? / 1_000,
        processes: read_number(&folder("pids", name).join("pids.current"))?,
        oom_kills: oom_kills(name)?,
    })
}

pub(super) fn oom_kills(name: &Path) -> io::Result<u64> {
    read_field(&folder("memory", name).join("memory.oom_control"), "oom_kill ")
}

pub(super) fn kill(name: &Path) -> io::Result<()> {
    let processes = folder("freezer", name).join("cgroup.procs");
    if !processes.exists() {
        return Ok(());
    }
    // Frozen processes do not die.
    set_frozen(name, false)?;
    wait_until("end the processes of a control group", || {
        let text = read_to_string(&processes)?;
        let pids =
            text.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?));
        for pid in pids {
            // It may have ended since it was listed.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        Ok(text.trim().is_empty())
    })
}

pub(super) fn remove_all(name: &Path) -> io::Result<()> {
    CONTROLLERS.iter().try_for_each(|controller| remove_folder(&folder(controller, name)))
}

/// The same for groups that other programs may have used too.
pub(super) fn remove_everywhere(name: &Path) -> io::Result<()> {
    remove_all(name)?;
    remove_elsewhere(name)
}

/// Removes the groups of this name in all trees.
pub(super) fn remove_elsewhere(name: &Path) -> io::Result<()> {
    folders_everywhere(name)?.iter().try_for_each(|folder| remove_folder(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_limited_where_the_kernel_counts_them() {
        let folder = tempfile::tempdir().unwrap();
        let limit = || read_to_string(folder.path().join(SOCKETS)).ok();
        limit_sockets(folder.path(), 1 << 30).unwrap();
        assert_eq!(limit(), None);
        write(folder.path().join(SOCKETS), "9223372036854771712\n").unwrap();
        limit_sockets(folder.path(), 1 << 30).unwrap();
        assert_eq!(limit().unwrap(), (1_u64 << 30).to_string());
        limit_sockets(folder.path(), 1).unwrap();
        assert_eq!(limit().unwrap(), (16_u64 << 20).to_string(), "enough for a few connections");
    }
}
