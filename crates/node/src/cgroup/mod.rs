//! Control groups: the limits of an instance, its freezing, and what it used. One module per
//! version of the interface.
//!
//! ```text
//! node ── all that instances may have together
//!  └─ owner.NAME ── what one owner may have
//!      └─ instance
//! ```
//!
//! Instances of nodes that did not know owners are right below the node.
//!
//! A process moves itself into its groups before it is anything else; there is no moment in which
//! it is outside. On version 1 that costs microseconds, on version 2 the kernel may take some
//! milliseconds for it.

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

/// Where a machine mounts its control groups.
pub(crate) const MOUNT: &str = "/sys/fs/cgroup";

/// How long the kernel may take to freeze, thaw, or let go of a group; far more than it needs.
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
    /// How often the kernel ended a process of the instance for want of memory.
    pub oom_kills: u64,
}

/// What the groups above those of instances hold to: the total is the node's, the share each
/// owner's.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    memory_mb: Limits,
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

/// Which version this machine offers with all that is needed.
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
        let bounds = Bounds { memory_mb: capacity.memory_mb, processes: capacity.processes };
        match version {
            Version::V1 => v1::prepare(name, bodies.extra_device_rules(), &bounds)?,
            Version::V2 => v2::prepare(name, &bounds)?,
        }
        let owners = Arc::new(Owners::new(version, name, bounds));
        Ok(Self { version, name: name.to_owned(), owners })
    }

    /// Has the group of an owner made, if it is not there, and keeps it as long as the answer
    /// lives. To be called before an instance of that owner gets a group.
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

    /// The group of an instance, below the mount of each controller.
    pub(crate) fn path(&self, owner: Option<&Owner>, id: &InstanceName) -> PathBuf {
        let node = PathBuf::from(&self.name);
        owner.map_or_else(|| node.clone(), |owner| owners::name(&node, owner)).join(id.as_str())
    }

    /// The instances that have a group, known or not, and their owners.
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

    /// Removes the groups of the node itself. Fails while an instance is left.
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

/// What the groups permit that the machine itself is in: it may be somebody's container.
pub(crate) fn limits_of_machine(controller: &str) -> impl Iterator<Item = u64> {
    let older =
        if controller == "memory" { "memory/memory.limit_in_bytes" } else { "pids/pids.max" };
    let files = [older.to_owned(), format!("{controller}.max")];
    // Most machines are in no group, and such files then do not exist or name no number.
    files.into_iter().filter_map(|file| read_number(&Path::new(MOUNT).join(file)).ok())
}

impl Group {
    /// Files into which a process writes `0` to join.
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

    /// Asks the kernel to write out or drop what memory it can.
    pub(crate) fn reclaim(&self) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::reclaim(name),
            Self::V2 { folder } => v2::reclaim(folder),
        }
    }

    /// Ends every process in the group, whoever it is, and removes the group, also where only
    /// another program made it.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        // Again and again: whoever was starting something in it when the node was killed may just
        // be adding to it.
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

/// Whether a removal has worked, or has to be tried again because something is in the group still.
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
        // More is in use than shall be, and the kernel cannot take it back.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            tracing::warn!(file = %file.display(), bound, "more is in use than a limit was set to; the limit stays as it was");
            Ok(())
        }
        Err(error) => Err(on(&format!("write {}", file.display()), error)),
        Ok(()) => Ok(()),
    }
}

fn on(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// The number in a file that holds nothing else.
fn read_number(file: &Path) -> io::Result<u64> {
    let text = std::fs::read_to_string(file)?;
    text.trim().parse().map_err(|_| unexpected(file))
}

/// The number behind a word in a file of `word number` lines.
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
