//! What the control plane asks of a machine that keeps snapshots. A snapshot is the files of an
//! instance as they were at one moment.

use crate::machine_fault::{LaunchFault, MachineFault};
use futures_util::future::BoxFuture;
use std::time::Duration;
use types::ids::ResourceId;
use types::instance::InstanceName;

/// Which snapshot to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    /// The id of the snapshot's row.
    pub id: ResourceId,
    /// The instance may run, sleep, or have ended, as long as it still exists.
    pub instance: InstanceName,
    /// The owning workspace. The machine's disk is divided between workspaces.
    pub workspace: String,
}

/// A snapshot that a machine keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    pub id: ResourceId,
    /// Disk space used by it alone, without what it shares with others.
    pub size_bytes: u64,
}

/// The result of taking a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSnapshot {
    pub size_bytes: u64,
    /// How long the instance was frozen.
    pub paused: Duration,
}

/// The image that a snapshot was taken over. What begins with the snapshot runs on this very image,
/// even if its name means another one by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    Kept,
    /// The image is no longer on the machine.
    Lost,
    /// The machine does not have the snapshot itself any more.
    Gone,
    /// The image was not recorded. It is assumed to be what its name means now.
    Unnoted,
}

pub trait SnapshotStore: Send + Sync + 'static {
    /// Takes a snapshot. If it exists already, returns what it is. Once this returns, the snapshot
    /// survives a power cut; if it fails, nothing of the snapshot is left.
    fn take(&self, new: NewSnapshot) -> BoxFuture<'_, Result<TakenSnapshot, SnapshotFault>>;

    /// Moves the files of a snapshot to where this machine keeps archives. They are fetched when
    /// something begins with the snapshot. A machine without such a place keeps them itself.
    fn offload<'a>(
        &'a self,
        _workspace: &'a str,
        _id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), SnapshotFault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Checks whether something can begin with a snapshot without waiting for its files.
    fn is_here(&self, _id: &ResourceId) -> bool {
        true
    }

    /// Fetches the files of a snapshot, and of those it lies over, from where they were moved.
    fn fetch<'a>(
        &'a self,
        _workspace: &'a str,
        _id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), SnapshotFault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes a snapshot for good. Files that instances or other snapshots still use stay on the
    /// disk until these are gone. Does nothing if there is no such snapshot.
    fn remove<'a>(&'a self, id: &'a ResourceId) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Returns what the machine has of the image below a snapshot.
    fn base(&self, id: &ResourceId) -> Base;

    /// The snapshots that were not removed.
    fn list(&self) -> Vec<KeptSnapshot>;
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    /// The workspace has used up its share of the disk and has to free some first.
    #[error("{0}")]
    OverShare(String),
    /// All workspaces together have used up the disk.
    #[error("{0}")]
    Full(String),
    /// The instance no longer exists.
    #[error("the instance is gone")]
    Gone,
    /// What the caller's programs wrote, or how they run, allows no snapshot.
    #[error("{0}")]
    Unfit(String),
    /// The machine does not have the snapshot any more.
    #[error("this machine does not have it any more")]
    Lost,
    #[error("{0}")]
    Broken(String),
}

impl From<SnapshotFault> for LaunchFault {
    fn from(fault: SnapshotFault) -> Self {
        match fault {
            SnapshotFault::OverShare(why) => Self::OverShare(why),
            SnapshotFault::Full(why) => Self::Full(why),
            fault @ (SnapshotFault::Gone
            | SnapshotFault::Unfit(_)
            | SnapshotFault::Lost
            | SnapshotFault::Broken(_)) => Self::Broken(fault.to_string()),
        }
    }
}
