//! Runs instances on this machine: programs that are isolated from the machine and from each other,
//! with the kernel features that isolate them.
//!
//! An [`Instance`](View) is a container today. Callers name it by an [`InstanceName`] and never see
//! how it is isolated, so that other kinds can be added beside containers. The node does not know
//! what an instance is for.
//!
//! ```text
//! Node ── NetworkPool  networks, users and devices, made before they are needed
//!      ├─ Body       what an instance runs in
//!      ├─ Groups     control groups: limits, freezing, usage
//!      ├─ launch     from clone to exec
//!      ├─ oci        the same by another program, for those who trust that one more
//!      ├─ Volumes    file systems that outlive instances
//!      ├─ Snapshots  what instances had written at one moment, for others to begin with
//!      ├─ Pool       the file system with the files that get cloned
//!      ├─ Drives     volumes that many instances have mounted at once
//!      ├─ Shares     the machine's resources, divided among the owners of instances
//!      ├─ Watch      one thread that learns of every exit
//!      ├─ records    one small file per instance, by which the next node finds it again
//!      └─ Journal    what happened, until somebody has taken note of it
//! ```
//!
//! **How an instance is isolated:** namespaces for processes, mounts, network, ipc, names, control
//! groups and users (its root is nobody outside); a root file system of read-only layers under a
//! writable one of limited size; limits of memory, cpu and processes; no capability over the
//! machine, no new privileges, a filter of system calls; a network that reaches the internet and
//! the server's own addresses, but otherwise neither its neighbours nor the machine. The kernel is
//! shared: whoever can break it from inside such a program breaks out. Only a machine of its own
//! would keep it in.
//!
//! **Instances outlive the node.** Whatever the node holds of an instance is found again through
//! the instance's process. An instance whose record is older than the machine's last start is
//! reported as lost.

mod adopt;
mod beginning;
mod body;
mod body_kind;
mod capacity;
mod cgroup;
mod console;
mod disk;
mod drives;
mod error;
mod extras;
mod facts;
mod file_system;
mod firewall;
mod fixed_settings;
mod instance;
mod launch;
mod loops;
mod mounts;
mod names;
mod net;
mod network_pool;
mod node;
mod number;
mod oci;
mod own_group;
mod pool;
mod probe;
mod process;
mod records;
mod remote_store;
mod scratch;
mod settings;
mod shared;
mod shares;
mod sign;
mod snapshots;
mod sparse;
mod spec;
mod state;
#[expect(unsafe_code, reason = "system calls that no safe interface offers")]
mod sys;
mod tunnel;
mod users;
mod volumes;
mod watch;
mod written;

pub use capacity::{Capacity, divided, free_disk_mb};
pub use cgroup::Usage;
pub use disk::layers_fit_memory;
pub use error::{
    CreateError, DriveError, Error, OpenError, SnapshotError, TunnelError, VolumeError,
};
pub use extras::{Extras, Mount, Mounted};
pub use instance::View;
pub use launch::{CONFIG_FD, LISTENER_FD, LaunchError};
pub use names::{NameError, Owner, SnapshotName};
pub use net::{Other, Overlaps, Reached, WayOut, overlaps, try_way_out};
pub use node::Node;
pub use probe::{Finding, probe, probe_clones, probe_needed};
pub use remote_store::{ReadStream, RemoteCopy, RemoteStore, WriteStream};
pub use settings::{
    Backend, EGRESS_MARK, Egress, Firewall, Level, Limits, NAMES_PORT, PROXY_PORT, Settings,
    Subnet, TRANSPARENT_PORT,
};
pub use shares::Largest;
pub use snapshots::{Here, NewSnapshot, Snapshot, Snapshots, Taken};
pub use spec::{FirstProcess, Program, Spec, SpecError, User, Writable};
pub use state::State;
pub use types::instance::{
    DriveMount, Exit, Fact, Happened, InstanceName, Medium, Resize, Scratch, VolumeCopy,
    VolumeMount, VolumeName, VolumeSource,
};
pub use users::IDS_PER_INSTANCE;
pub use volumes::{Filling, NewVolume, Volume, Volumes};
pub use written::Written;
