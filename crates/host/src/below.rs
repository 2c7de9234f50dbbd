//! What a launch lies over. Files that it begins with lie over the image that they were written
//! over, because with another one the two would form a tree that never existed.

use crate::bases::Below;
use crate::{Inner, refusals};
use control::machine::{Launch, LaunchFault};
use images::Digest;
use node::{SnapshotName, VolumeError, VolumeName};
use types::chain;

/// What files of a launch were written over.
pub(crate) struct Beneath {
    /// What has the files.
    pub(crate) what: &'static str,
    pub(crate) below: Below,
}

/// Returns the snapshot that a launch begins with.
pub(crate) fn snapshot_of(launch: &Launch) -> Result<Option<SnapshotName>, LaunchFault> {
    let name = launch.snapshot.as_ref().map(|id| SnapshotName::new(id.as_str())).transpose();
    name.map_err(|error| LaunchFault::Broken(chain(&error)))
}

impl Inner {
    /// Returns what the files that a launch begins with were written over. It begins with those on
    /// its disk, or else with those of a snapshot.
    pub(crate) fn below(&self, launch: &Launch) -> Result<Option<Beneath>, LaunchFault> {
        let broken = |error: &dyn std::error::Error| LaunchFault::Broken(chain(error));
        if let Some(disk) = self.disk_of(launch) {
            let found = self.disks.find(disk, self.node.volumes(), &self.images);
            let found = found.map_err(|error| match error {
                VolumeError::InUse(_) => refusals::in_use(),
                other => broken(&other),
            })?;
            if let Some(digest) = found {
                let below = match self.images.has(&digest) {
                    true => Below::Image(digest),
                    false => Below::Lost(digest),
                };
                return Ok(Some(Beneath { what: "disk", below }));
            }
        }
        let Some(name) = snapshot_of(launch)? else { return Ok(None) };
        let below = Below::of(&name, self.node.snapshots(), &self.images);
        let below = below.map_err(|error| broken(&error))?;
        Ok(Some(Beneath { what: "snapshot", below }))
    }

    /// Returns the image of a launch: the one below its files, otherwise the one that is named.
    pub(crate) fn image_below(&self, launch: &Launch) -> Result<Digest, LaunchFault> {
        match self.below(launch)? {
            Some(Beneath { below: Below::Image(digest), .. }) => Ok(digest),
            Some(Beneath { what, below: Below::Lost(digest) }) => Err(LaunchFault::Pull(format!(
                "the image below its {what} is not on this machine any more: {digest}; its files are kept"
            ))),
            None | Some(Beneath { below: Below::Unnoted, .. }) => {
                self.image_of(&launch.image, launch.granted.as_deref())
            }
        }
    }

    /// Returns the disk that a launch has, if that stays.
    pub(crate) fn disk_of<'l>(&self, launch: &'l Launch) -> Option<&'l VolumeName> {
        launch.storage_mb.and(launch.root.as_ref()).filter(|_| self.keeps_volumes)
    }
}
