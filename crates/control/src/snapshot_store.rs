//! What the management side asks of a machine that keeps snapshots: the files of an instance as they
//! were at one moment.

use crate::machine::{LaunchFault, MachineFault, Wait};
use std::time::Duration;
use types::ids::ResourceId;
use types::instance::InstanceName;

/// What to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSnapshot {
    /// Of the row of the snapshot.
    pub id: ResourceId,
    /// Runs, sleeps, or has ended and is there still.
    pub instance: InstanceName,
    /// Whose it is: the machine's disk is divided between workspaces.
    pub workspace: String,
}

/// One that a machine keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSnapshot {
    pub id: ResourceId,
    /// What it takes of the disk, without what it shares with others.
    pub size_bytes: u64,
}

/// One that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenSnapshot {
    pub size_bytes: u64,
    /// How long the instance stood still.
    pub paused: Duration,
}

/// The image below a snapshot: what begins with it runs on that one, whatever its name means by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    Kept,
    /// It is not on the machine any more.
    Lost,
    /// Which one it is was not noted: it is taken to be what its name means.
    Unnoted,
}

pub trait SnapshotStore: Send + Sync + 'static {
    /// Takes one, unless it is there: then it answers what that is. It survives the machine's power
    /// when this answers, and nothing of it is left when this fails.
    fn take(&self, new: NewSnapshot) -> Wait<'_, Result<TakenSnapshot, SnapshotFault>>;

    /// Gives the files of one to wherever this machine keeps what is archived. They are fetched when
    /// something begins with them. A machine that has no such place keeps them itself.
    fn offload<'a>(
        &'a self,
        _workspace: &'a str,
        _id: &'a ResourceId,
    ) -> Wait<'a, Result<(), SnapshotFault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether something can begin with one without waiting for its files.
    fn is_here(&self, _id: &ResourceId) -> bool {
        true
    }

    /// Fetches the files of one, and of what it lies over, from where they were put.
    fn fetch<'a>(
        &'a self,
        _workspace: &'a str,
        _id: &'a ResourceId,
    ) -> Wait<'a, Result<(), SnapshotFault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes one for good. What instances and other snapshots still stand on stays on the disk until
    /// they are gone. Without such a snapshot there is nothing to do.
    fn remove<'a>(&'a self, id: &'a ResourceId) -> Wait<'a, Result<(), MachineFault>>;

    /// What the machine has of the image below a snapshot.
    fn base(&self, id: &ResourceId) -> Base;

    /// Those that were not removed.
    fn list(&self) -> Vec<KeptSnapshot>;
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    /// The workspace has to give something back first.
    #[error("{0}")]
    OverShare(String),
    /// All workspaces together have taken what there is.
    #[error("{0}")]
    Full(String),
    /// There is no such instance any more.
    #[error("the instance is gone")]
    Gone,
    #[error("{0}")]
    Broken(String),
}

impl From<SnapshotFault> for LaunchFault {
    fn from(fault: SnapshotFault) -> Self {
        match fault {
            SnapshotFault::OverShare(why) => Self::OverShare(why),
            SnapshotFault::Full(why) => Self::Full(why),
            fault @ (SnapshotFault::Gone | SnapshotFault::Broken(_)) => {
                Self::Broken(fault.to_string())
            }
        }
    }
}
