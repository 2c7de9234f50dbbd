//! This machine's volumes, as `control` sees them.

use crate::refusals::{no_space, over_limit};
use crate::{Inner, Interrupted, LocalMachine};
use control::machine::{LaunchFault, MachineFault};
use control::volume_store::{KeptCopy, KeptVolume, NewVolume, VolumeFault, VolumeStore};
use futures_util::future::BoxFuture;
use node::{Owner, VolumeError, VolumeName};
use types::{Timestamp, chain};

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
        other => match no_space(other) {
            Some(why) => VolumeFault::Full(why),
            None => VolumeFault::Broken(chain(other)),
        },
    }
}

fn owner(workspace: &str) -> Result<Owner, VolumeFault> {
    Owner::new(workspace).map_err(|error| VolumeFault::Broken(chain(&error)))
}

impl LocalMachine {
    async fn on_volumes<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeFault> {
        self.on_node(move |inner| work(inner).map_err(|error| fault(&error))).await
    }
}

impl VolumeStore for LocalMachine {
    fn make(&self, new: NewVolume) -> BoxFuture<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            let NewVolume { name, workspace, size_mb, from } = new;
            let volumes = self.0.node.volumes();
            let fetches = from.as_ref().is_some_and(|from| volumes.size_mb(&from.name).is_none());
            let _turn = if fetches { self.transfer_turn(&workspace).await } else { None };
            let new = node::NewVolume { name, owner: owner(&workspace)?, size_mb, from };
            let make = move |inner: &Inner| inner.node.volumes().make(&new);
            self.on_volumes(make).await
        })
    }

    fn grow<'a>(
        &'a self,
        name: &'a VolumeName,
        size_mb: u32,
    ) -> BoxFuture<'a, Result<(), VolumeFault>> {
        let name = name.clone();
        let grow = move |inner: &Inner| {
            inner.node.volumes().grow(&name, size_mb).map_err(|error| fault(&error))
        };
        Box::pin(self.on_node(grow))
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> BoxFuture<'a, Result<(), MachineFault>> {
        let name = name.clone();
        let remove = move |inner: &Inner| {
            let removed = inner.node.volumes().remove(&name);
            removed.map_err(|error| MachineFault(chain(&error)))?;
            inner.disks.forget(&name);
            Ok(())
        };
        Box::pin(self.on_node(remove))
    }

    fn list(&self) -> Vec<KeptVolume> {
        let kept = |volume: node::Volume| KeptVolume { name: volume.name, size_mb: volume.size_mb };
        self.0.node.volumes().list().into_iter().map(kept).collect()
    }

    fn size_mb(&self, name: &VolumeName) -> Option<u32> {
        self.0.node.volumes().size_mb(name)
    }

    fn has_image_below(&self, disk: &VolumeName) -> bool {
        self.0.disks.below(disk).is_some_and(|digest| self.0.images.has(&digest))
    }

    fn put_copy<'a>(
        &'a self,
        workspace: &'a str,
        name: &'a VolumeName,
    ) -> BoxFuture<'a, Result<Option<String>, VolumeFault>> {
        Box::pin(async move {
            let _turn = self.transfer_turn(workspace).await;
            let name = name.clone();
            self.on_volumes(move |inner| inner.node.volumes().put_copy(&name)).await
        })
    }

    fn copies(&self) -> BoxFuture<'_, Result<Option<Vec<KeptCopy>>, VolumeFault>> {
        let kept = |(owner, name): (Owner, VolumeName)| KeptCopy {
            workspace: owner.as_str().to_owned(),
            name,
        };
        Box::pin(async move {
            let found = self.on_volumes(|inner| inner.node.volumes().copies()).await?;
            Ok(found.map(|found| found.into_iter().map(kept).collect()))
        })
    }

    fn remove_copy<'a>(&'a self, copy: &'a KeptCopy) -> BoxFuture<'a, Result<(), VolumeFault>> {
        Box::pin(async move {
            let (owner, name) = (owner(&copy.workspace)?, copy.name.clone());
            self.on_volumes(move |inner| inner.node.volumes().remove_copy(&owner, &name)).await
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a VolumeName,
        since: Timestamp,
    ) -> BoxFuture<'a, Result<(), VolumeFault>> {
        let name = name.clone();
        let release =
            move |inner: &Inner| inner.node.volumes().release(&name, since.seconds()).map(drop);
        Box::pin(self.on_volumes(release))
    }
}
