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

mod files;
mod owners;
mod resources;
mod v1;
mod v2;
mod version;
mod wait;

pub(crate) use owners::Membership;
pub use resources::Usage;
pub(crate) use resources::limits_of_machine;
pub(crate) use version::{Version, version};

use crate::body_kind::BodyKind;
use crate::capacity::Capacity;
use crate::names::Owner;
use crate::spec::Spec;
use files::folders_in;
use owners::Owners;
use resources::Bounds;
use rustix::fd::OwnedFd;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::instance::InstanceName;
use wait::wait_until;

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
        let prepared = match version {
            Version::V1 => v1::prepare(name, bodies.extra_device_rules(), &bounds),
            Version::V2 => v2::prepare(name, &bounds),
        };
        if let Err(error) = prepared {
            // Groups of an earlier node have instances in them and stay. So may what cannot be
            // removed: the first error says why.
            let _ = remove_own(version, name);
            return Err(error);
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
        list_no_programs_out_of_memory();
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
        remove_own(self.version, &self.name)
    }
}

/// Removes the groups of a node itself. Fails while there is a group in them.
fn remove_own(version: Version, name: &str) -> io::Result<()> {
    match version {
        Version::V1 => v1::remove_everywhere(Path::new(name)),
        Version::V2 => v2::remove(&v2::folder(Path::new(name))),
    }
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

    pub(crate) fn lift_cpu_limit(&self) -> io::Result<()> {
        match self {
            Self::V1 { name } => v1::lift_cpu_limit(name),
            Self::V2 { folder } => v2::lift_cpu_limit(folder),
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

/// Keeps the kernel from writing a list of programs into the machine's log each time that a group
/// runs out of memory. An instance can let that happen all the time, and would fill the log.
fn list_no_programs_out_of_memory() {
    const SETTING: &str = "/proc/sys/vm/oom_dump_tasks";
    if std::fs::read_to_string(SETTING).is_ok_and(|setting| setting.trim() != "0")
        && let Err(error) = std::fs::write(SETTING, "0")
    {
        tracing::warn!(%error, "cannot change `vm.oom_dump_tasks`: instances that run out of memory fill the kernel's log");
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
