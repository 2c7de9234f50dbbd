//! Control groups: they limit instances, freeze them, and measure what they use. There is one
//! module per version of the kernel's interface.
//!
//! ```text
//! node ── limits for all instances together
//!  └─ owner.NAME ── limits for one owner
//!      └─ instance
//! ```
//!
//! Instances of releases that did not know owners are directly below the node.
//!
//! A process moves itself into its groups before it does anything else, so it is never outside of
//! them. On version 1 that costs microseconds; on version 2 the kernel may take some milliseconds.

mod owners;
mod v1;
mod v2;

pub(crate) use owners::Membership;

use crate::body_kind::BodyKind;
use crate::capacity::Capacity;
use crate::spec::{Owner, Spec};
use admission::Limits;
use owners::Owners;
use rustix::fd::OwnedFd;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use types::instance::InstanceName;

/// The folder where a machine mounts its control groups.
pub(crate) const MOUNT: &str = "/sys/fs/cgroup";

/// How long the kernel may take to freeze, thaw, or release a group. Far more than it needs.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub memory_bytes: u64,
    pub cpu_us: u64,
    pub processes: u64,
    /// How often the kernel has killed a process of the instance because memory ran out.
    pub oom_kills: u64,
}

/// The limits of the groups above those of instances: the total is the node's, the share is each
/// owner's.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    memory_mb: Limits,
    swap_mb: Limits,
    processes: Limits,
}

/// The groups of all instances of one node.
#[derive(Debug, Clone)]
pub(crate) struct Groups {
    version: Version,
    name: String,
    owners: Arc<Owners>,
}

/// The group of one instance.
#[derive(Debug)]
pub(crate) enum Group {
    /// One folder of this name below the mount of each controller.
    V1 {
        name: PathBuf,
    },
    V2 {
        folder: PathBuf,
    },
}

/// Returns the version that this machine offers with everything needed.
pub(crate) fn version() -> Option<Version> {
    let root = Path::new(MOUNT);
    if v2::offered(root) {
        Some(Version::V2)
    } else if v1::offered(root) {
        Some(Version::V1)
    } else {
        None
    }
}

impl Groups {
    pub(crate) fn open(name: &str, bodies: BodyKind, capacity: &Capacity) -> io::Result<Self> {
        let version = version().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "no control groups with memory, cpu, pids and freezer",
            )
        })?;
        let bounds = Bounds {
            memory_mb: capacity.memory_mb,
            swap_mb: capacity.swap_mb,
            processes: capacity.processes,
        };
        match version {
            Version::V1 => v1::prepare(name, bodies.extra_device_rules(), &bounds)?,
            Version::V2 => v2::prepare(name, &bounds)?,
        }
        let limits_swap = match version {
            Version::V1 => v1::limits_swap(name),
            Version::V2 => v2::limits_swap(name),
        };
        if !limits_swap {
            tracing::warn!(
                "this kernel does not count swap (swapaccount=0): instances share it without limits"
            );
        }
        let owners = Arc::new(Owners::new(version, name, bounds));
        Ok(Self { version, name: name.to_owned(), owners })
    }

    /// Makes an owner's group if it does not exist, and keeps it as long as the returned value
    /// lives. Call this before an instance of that owner gets a group.
    pub(crate) fn join(&self, owner: &Owner) -> io::Result<Membership> {
        self.owners.join(owner)
    }

    pub(crate) fn make(&self, spec: &Spec) -> io::Result<Group> {
        let group = self.find(Some(&spec.owner), &spec.id);
        let made = match &group {
            Group::V1 { name } => v1::make(name, spec),
            Group::V2 { folder } => v2::make(folder, spec),
        };
        if let Err(error) = made {
            group.remove()?;
            return Err(error);
        }
        Ok(group)
    }

    pub(crate) fn find(&self, owner: Option<&Owner>, id: &InstanceName) -> Group {
        let name = self.path(owner, id);
        match self.version {
            Version::V1 => Group::V1 { name },
            Version::V2 => Group::V2 { folder: v2::folder(&name) },
        }
    }

    /// Returns the path of an instance's group, below the mount of each controller.
    pub(crate) fn path(&self, owner: Option<&Owner>, id: &InstanceName) -> PathBuf {
        let node = PathBuf::from(&self.name);
        owner.map_or_else(|| node.clone(), |owner| owners::name(&node, owner)).join(id.as_str())
    }

    /// Lists the instances that have a group, known or not, with their owners.
    pub(crate) fn list(&self) -> io::Result<Vec<(Option<Owner>, InstanceName)>> {
        let folder = match self.version {
            Version::V1 => v1::folder("pids", Path::new(&self.name)),
            Version::V2 => v2::folder(Path::new(&self.name)),
        };
        let mut found = Vec::new();
        for name in folders_in(&folder)? {
            match owners::of_folder(&name) {
                Some(owner) => {
                    let ids = folders_in(&folder.join(&name))?
                        .into_iter()
                        .filter_map(|name| InstanceName::new(name).ok());
                    found.extend(ids.map(|id| (Some(owner.clone()), id)));
                }
                None => found.extend(InstanceName::new(name).ok().map(|id| (None, id))),
            }
        }
        Ok(found)
    }

    /// Removes the groups of owners without instances.
    pub(crate) fn tidy(&self) -> io::Result<()> {
        self.owners.remove_empty()
    }

    /// Removes the node's own groups. Fails while an instance is left.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.tidy()?;
        match self.version {
            Version::V1 => v1::remove_everywhere(Path::new(&self.name)),
            Version::V2 => v2::remove(&v2::folder(Path::new(&self.name))),
        }
    }
}

fn folders_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// Returns the limits of the groups that this machine itself is in: it may be a container.
pub(crate) fn limits_of_machine(controller: &str) -> impl Iterator<Item = u64> {
    let older =
        if controller == "memory" { "memory/memory.limit_in_bytes" } else { "pids/pids.max" };
    let files = [older.to_owned(), format!("{controller}.max")];
    // On most machines these files do not exist or hold no number.
    files.into_iter().filter_map(|file| read_number(&Path::new(MOUNT).join(file)).ok())
}

impl Group {
    /// Opens the files into which a process writes `0` to join.
    pub(crate) fn entrances(&self) -> io::Result<Vec<OwnedFd>> {
        match self {
            Self::V1 { name } => v1::entrances(name),
            Self::V2 { folder } => v2::entrances(folder),
        }
    }

    pub(crate) fn freeze(&self) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::freeze(name),
            Self::V2 { folder } => {
                v2::set_frozen(folder, true)?;
                wait_until("freeze", || self.frozen())
            }
        }
    }

    pub(crate) fn thaw(&self) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::set_frozen(name, false)?,
            Self::V2 { folder } => v2::set_frozen(folder, false)?,
        }
        wait_until("thaw", || self.frozen().map(|frozen| !frozen))
    }

    pub(crate) fn frozen(&self) -> io::Result<bool> {
        match self {
            Self::V1 { name } => v1::frozen(name),
            Self::V2 { folder } => v2::frozen(folder),
        }
    }

    pub(crate) fn limit_cpu(&self, millicores: u32) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::limit_cpu(name, millicores),
            Self::V2 { folder } => v2::limit_cpu(folder, millicores),
        }
    }

    pub(crate) fn usage(&self) -> io::Result<Usage> {
        match self {
            Self::V1 { name } => v1::usage(name),
            Self::V2 { folder } => v2::usage(folder),
        }
    }

    pub(crate) fn oom_kills(&self) -> io::Result<u64> {
        match self {
            Self::V1 { name } => v1::oom_kills(name),
            Self::V2 { folder } => v2::oom_kills(folder),
        }
    }

    /// Asks the kernel to write out or drop as much memory as it can.
    pub(crate) fn reclaim(&self) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::reclaim(name),
            Self::V2 { folder } => v2::reclaim(folder),
        }
    }

    /// Kills every process in the group and removes the group, also in trees where only another
    /// program made it.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        // Repeatedly: something that was just starting when the node was killed may still be adding
        // processes.
        wait_until("let go of a control group", || {
            match self {
                Self::V1 { name } => v1::kill(name)?,
                Self::V2 { folder } => v2::kill(folder)?,
            }
            gone(self.remove_once().and_then(|()| match self {
                Self::V1 { name } => v1::remove_elsewhere(name),
                Self::V2 { .. } => Ok(()),
            }))
        })
    }

    /// Removes the group. The processes in it must be about to end.
    pub(crate) fn remove(&self) -> io::Result<()> {
        wait_until("let go of a control group", || gone(self.remove_once()))
    }

    fn remove_once(&self) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::remove_all(name),
            Self::V2 { folder } => v2::remove(folder),
        }
    }
}

/// Returns true if a removal worked, and false if it has to be repeated because something is still
/// in the group.
fn gone(removed: io::Result<()>) -> io::Result<bool> {
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(false),
        Err(error) => Err(error),
    }
}

fn wait_until(what: &str, done: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    wait_at_most(KERNEL_TIMEOUT, what, done)
}

fn wait_at_most(
    timeout: Duration,
    what: &str,
    mut done: impl FnMut() -> io::Result<bool>,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    while !done()? {
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the kernel did not {what}"),
            ));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Sets a limit of a group that may be in use.
fn set_bound(file: &Path, bound: u64) -> io::Result<()> {
    match std::fs::write(file, bound.to_string()) {
        // More is in use than the limit allows, and the kernel cannot take it back.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            tracing::warn!(file = %file.display(), bound, "more is in use than a limit was set to; the limit stays as it was");
            Ok(())
        }
        Err(error) => Err(on(&format!("write {}", file.display()), error)),
        Ok(()) => Ok(()),
    }
}

/// Sets a limit of swap, if the kernel counts swap at all: that can be turned off.
fn set_swap(file: &Path, bytes: u64) -> io::Result<()> {
    if file.exists() { set_bound(file, bytes) } else { Ok(()) }
}

fn on(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Reads a file that holds only a number.
fn read_number(file: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(file)?;
    text.trim().parse().map_err(|_| unexpected(file))
}

/// Reads the number after a word, in a file of `word number` lines.
fn read_field(file: &Path, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(file)?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
        .ok_or_else(|| unexpected(file))
}

fn unexpected(file: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("`{}` does not say what it should", file.display()),
    )
}

fn open_for_writing(file: &Path) -> io::Result<OwnedFd> {
    Ok(std::fs::OpenOptions::new().write(true).open(file)?.into())
}
