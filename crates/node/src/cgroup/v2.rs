//! The newer interface: one tree for all controllers.

use super::{MOUNT, Usage, make_folder, open_for_writing, read_field, read_number, remove_folder};
use crate::spec::Spec;
use rustix::fd::OwnedFd;
use std::fs::{read_to_string, write};
use std::io;
use std::path::{Path, PathBuf};

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const PERIOD_US: u64 = 100_000;

pub(super) fn offered(root: &Path) -> bool {
    let text = read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    has_all(&text)
}

fn has_all(controllers: &str) -> bool {
    CONTROLLERS.iter().all(|wanted| controllers.split_whitespace().any(|offered| offered == *wanted))
}

pub(super) fn folder(name: &Path) -> PathBuf {
    Path::new(MOUNT).join(name)
}

pub(super) fn prepare(name: &str) -> io::Result<()> {
    let folder = folder(Path::new(name));
    make_folder(&folder)?;
    for level in [Path::new(MOUNT), &folder] {
        write(level.join("cgroup.subtree_control"), "+cpu +memory +pids")?;
    }
    Ok(())
}

pub(super) fn make(name: &Path, spec: &Spec) -> io::Result<()> {
    let folder = folder(name);
    std::fs::create_dir(&folder)?;
    limits(spec).iter().try_for_each(|(file, text)| write(folder.join(file), text))
}

fn limits(spec: &Spec) -> [(&'static str, String); 3] {
    let quota = u64::from(spec.cpu_millicores) * PERIOD_US / 1_000;
    [
        ("memory.max", (u64::from(spec.memory_mb) << 20).to_string()),
        ("cpu.max", format!("{quota} {PERIOD_US}")),
        ("pids.max", spec.pids_max.to_string()),
    ]
}

pub(super) fn entrances(name: &Path) -> io::Result<Vec<OwnedFd>> {
    Ok(vec![open_for_writing(&folder(name).join("cgroup.procs"))?])
}

pub(super) fn set_frozen(name: &Path, frozen: bool) -> io::Result<()> {
    write(folder(name).join("cgroup.freeze"), if frozen { "1" } else { "0" })
}

pub(super) fn frozen(name: &Path) -> io::Result<bool> {
    Ok(read_field(&folder(name).join("cgroup.events"), "frozen ")? == 1)
}

pub(super) fn usage(name: &Path) -> io::Result<Usage> {
    let folder = folder(name);
    Ok(Usage {
        memory_bytes: read_number(&folder.join("memory.current"))?,
        cpu_us: read_field(&folder.join("cpu.stat"), "usage_usec ")?,
        processes: read_number(&folder.join("pids.current"))?,
        oom_kills: oom_kills(name)?,
    })
}

pub(super) fn oom_kills(name: &Path) -> io::Result<u64> {
    read_field(&folder(name).join("memory.events"), "oom_kill ")
}

pub(super) fn reclaim(name: &Path) -> io::Result<()> {
    let folder = folder(name);
    let bytes = read_number(&folder.join("memory.current"))?;
    match write(folder.join("memory.reclaim"), bytes.to_string()) {
        // The kernel's word for having freed less than it was asked to.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}

pub(super) fn kill(name: &Path) -> io::Result<()> {
    let folder = folder(name);
    if !folder.exists() {
        return Ok(());
    }
    write(folder.join("cgroup.kill"), "1")?;
    super::wait_until("end the processes of a control group", || {
        Ok(read_field(&folder.join("cgroup.events"), "populated ")? == 0)
    })
}

pub(super) fn remove(name: &Path) -> io::Result<()> {
    remove_folder(&folder(name))
}
