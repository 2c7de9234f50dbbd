//! What all instances of a node share.

use crate::cgroup::Groups;
use crate::drives::Drives;
use crate::facts::Journal;
use crate::launch::starter::Starter;
use crate::net::Home;
use crate::oci::Bundles;
use crate::records::Records;
use crate::scratch::Scratches;
use crate::settings::Settings;
use crate::shares::Shares;
use crate::sign::Sign;
use crate::snapshots::Snapshots;
use crate::volumes::Volumes;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use types::World;

/// What is needed to make an instance.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) stores: Arc<Stores>,
    pub(crate) groups: Groups,
    pub(crate) home: Arc<Home>,
    pub(crate) starter: Arc<Starter>,
    pub(crate) null: OwnedFd,
    pub(crate) boot: String,
    /// The limit of open files for each process, within this process's own: raising that would need
    /// another privilege.
    pub(crate) open_files: u64,
    /// The size of each drive that is made, in MB.
    pub(crate) drive_mb: AtomicU32,
}

/// The small stores that all instances write into.
pub(crate) struct Stores {
    pub(crate) journal: Journal,
    pub(crate) records: Records,
    pub(crate) bundles: Bundles,
    pub(crate) scratches: Scratches,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) drives: Drives,
    pub(crate) shares: Shares,
    pub(crate) sign: Sign,
    pub(crate) world: World,
}
