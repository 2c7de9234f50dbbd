//! Instances on this machine: programs that run apart from the machine and from each other, and the
//! kernel beneath them.
//!
//! An [`Instance`](View) is one container now; callers name it by an [`InstanceName`] and never see how it is
//! kept apart, so that other kinds can stand beside containers. The node knows nothing of what an
//! instance is for.
//!
//! ```text
//! Node ── NetworkPool  networks, users and devices, made before they are needed
//!      ├─ Body       what an instance runs in
//!      ├─ Groups     control groups: limits, freezing, usage
//!      ├─ launch     from clone to exec
//!      ├─ oci        the same by another program, for those who trust that one more
//!      ├─ Volumes    file systems that outlive instances
//!      ├─ Snapshots  what instances had written at one moment, for others to begin with
//!      ├─ Pool       where files are that are cloned
//!      ├─ Drives     those of them that many instances have at once
//!      ├─ Shares     what the machine has once, divided among the owners of instances
//!      ├─ Watch      one thread that learns of every exit
//!      ├─ records    one small file per instance, by which the next node finds it again
//!      └─ Journal    what happened, until somebody has taken note of it
//! ```
//!
//! **What keeps an instance apart:** namespaces for processes, mounts, network, ipc, names, control
//! groups and users (its root is nobody outside); a root file system of read-only layers under a
//! writable one of limited size; limits of memory, cpu and processes; no capability over the
//! machine, no new privileges, a filter of system calls; a network that reaches the internet but
//! neither its neighbours nor, but for the server's own addresses, the machine. The kernel is
//! shared: whoever can break it from a
//! program's place breaks out. That is what machines of their own are for.
//!
//! **Instances outlive the node.** Whatever it holds of them is found again through the process of
//! the instance. An instance whose record is older than the machine's start is reported as lost.

mod adopt;
mod beginning;
mod body;
mod body_kind;
mod capacity;
mod cgroup;
mod console;
mod create;
mod disk;
mod drives;
mod error;
mod extras;
mod facts;
mod file_system;
mod firewall;
mod instance;
mod launch;
mod loops;
mod net;
mod network_pool;
mod node;
mod number;
mod oci;
mod pool;
mod probe;
mod process;
mod records;
mod scratch;
mod settings;
mod shared;
mod shares;
mod sign;
mod snapshots;
mod spec;
mod state;
#[expect(unsafe_code, reason = "system calls that no safe interface offers")]
mod sys;
mod tunnel;
mod volumes;
mod watch;

pub use capacity::{Capacity, divided, free_disk_mb};
pub use cgroup::Usage;
pub use error::{
    CreateError, DriveError, Error, OpenError, SnapshotError, TunnelError, VolumeError,
};
pub use extras::{Extras, Mount, Mounted, Written};
pub use instance::View;
pub use launch::{CONFIG_FD, LISTENER_FD, LaunchError};
pub use network_pool::IDS_PER_INSTANCE;
pub use node::Node;
pub use probe::{Finding, probe, probe_clones};
pub use settings::{
    Backend, EGRESS_MARK, Egress, Firewall, Level, Limits, NAMES_PORT, PROXY_PORT, Settings,
    Subnet, TRANSPARENT_PORT,
};
pub use shares::Largest;
pub use snapshots::{
    Here, NewSnapshot, ReadStream, RemoteCopy, RemoteStore, Snapshot, SnapshotName, Snapshots,
    Taken, WriteStream,
};
pub use spec::{FirstProcess, Owner, Program, Spec, SpecError, User, Writable};
pub use state::State;
pub use types::instance::{
    DriveMount, Exit, Fact, Happened, InstanceName, Medium, Scratch, VolumeMount, VolumeName,
};
pub use volumes::{Filling, NewVolume, Volume, Volumes};
