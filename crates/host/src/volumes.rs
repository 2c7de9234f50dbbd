//! This machine's volumes, as `control` sees them.

use crate::refusals::over_limit;
use crate::{Inner, Interrupted, LocalMachine};
use control::machine::{LaunchFault, MachineFault, Wait};
use control::volume_store::{KeptVolume, NewVolume, VolumeFault, VolumeStore};
use node::{Owner, VolumeError, VolumeName};
use types::chain;

/// A [`LocalMachine`] restricted to what concerns volumes.
pub(crate) struct LocalVolumes(pub(crate) LocalMachine);

impl From<Interrupted> for VolumeFault {
    fn from(interrupted: Interrupted) -> Self {
        Self::Broken(interrupted.to_string())
    }
}

pub(crate) fn fault(error: &VolumeError) -> VolumeFault {
    match error {
        VolumeError::Refused(refused) => match over_limit(*refused) {
            LaunchFault::OverShare(why) => VolumeFault::OverShare(why),
            other => VolumeFault::Full(other.to_string()),
        },
        VolumeError::TooSmall { size_mb, needs_mb } => {
            VolumeFault::TooSmall { size_mb: *size_mb, needs_mb: *needs_mb }
        }
        VolumeError::SourceGone(_) => VolumeFault::SourceGone,
        other => VolumeFault::Broken(chain(other)),
    }
}

impl VolumeStore for LocalVolumes {
    fn make(&self, new: NewVolume) -> Wait<'_, Result<(), VolumeFault>> {
        let make = move |inner: &Inner| {
            let NewVolume { name, workspace, size_mb, from } = new;
            let owner =
                Owner::new(workspace).map_err(|error| VolumeFault::Broken(chain(&error)))?;
            let new = node::NewVolume { name, owner, size_mb, from };
            inner.node.volumes().make(&new).map_err(|error| fault(&error))
        };
        Box::pin(self.0.on_node(make))
    }

    fn grow<'a>(&'a self, name: &'a VolumeName, size_mb: u32) -> Wait<'a, Result<(), VolumeFault>> {
        let name = name.clone();
        let grow = move |inner: &Inner| {
            inner.node.volumes().grow(&name, size_mb).map_err(|error| fault(&error))
        };
        Box::pin(self.0.on_node(grow))
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> Wait<'a, Result<(), MachineFault>> {
        let name = name.clone();
        let remove = move |inner: &Inner| {
            inner.node.volumes().remove(&name).map_err(|error| MachineFault(chain(&error)))
        };
        Box::pin(self.0.on_node(remove))
    }

    fn list(&self) -> Vec<KeptVolume> {
        let kept = |volume: node::Volume| KeptVolume { name: volume.name, size_mb: volume.size_mb };
        self.0.0.node.volumes().list().into_iter().map(kept).collect()
    }

    fn size_mb(&self, name: &VolumeName) -> Option<u32> {
        self.0.0.node.volumes().size_mb(name)
    }
}
