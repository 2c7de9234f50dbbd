//! This machine's snapshots, as `control` sees them.

use crate::bases::Below;
use crate::refusals::{no_space, over_limit};
use crate::{Inner, Interrupted, LocalMachine};
use control::machine::{LaunchFault, MachineFault};
use control::snapshot_store::{
    Base, KeptSnapshot, NewSnapshot, SnapshotFault, SnapshotStore, TakenSnapshot,
};
use futures_util::future::BoxFuture;
use images::Digest;
use node::{Owner, SnapshotError, SnapshotName, VolumeError};
use types::chain;
use types::ids::ResourceId;

impl From<Interrupted> for SnapshotFault {
    fn from(interrupted: Interrupted) -> Self {
        Self::Broken(interrupted.to_string())
    }
}

fn fault(error: &SnapshotError) -> SnapshotFault {
    match error {
        SnapshotError::Gone(_) | SnapshotError::Disk(VolumeError::Missing(_)) => {
            SnapshotFault::Gone
        }
        SnapshotError::Missing(_) => SnapshotFault::Lost,
        SnapshotError::TooDeep
        | SnapshotError::TooMany { .. }
        | SnapshotError::TooLong { .. }
        | SnapshotError::Restless
        | SnapshotError::OutOfReach { .. } => SnapshotFault::Unfit(error.to_string()),
        SnapshotError::Refused(refused) => match over_limit(*refused) {
            LaunchFault::OverShare(why) => SnapshotFault::OverShare(why),
            other => SnapshotFault::Full(other.to_string()),
        },
        other => match no_space(other) {
            Some(why) => SnapshotFault::Full(why),
            None => SnapshotFault::Broken(chain(other)),
        },
    }
}

fn wanted(new: &NewSnapshot, image: Option<Digest>) -> Result<node::NewSnapshot, SnapshotFault> {
    let broken = |error: node::NameError| SnapshotFault::Broken(chain(&error));
    Ok(node::NewSnapshot {
        name: name(&new.id).map_err(broken)?,
        owner: Owner::new(new.workspace.as_str()).map_err(broken)?,
        instance: new.instance.clone(),
        base: image.map(|image| image.to_string()),
    })
}

/// Returns the node's name for a snapshot.
fn name(id: &ResourceId) -> Result<SnapshotName, node::NameError> {
    SnapshotName::new(id.as_str())
}

impl SnapshotStore for LocalMachine {
    fn take(&self, new: NewSnapshot) -> BoxFuture<'_, Result<TakenSnapshot, SnapshotFault>> {
        let workspace = new.workspace.clone();
        let take = move |inner: &Inner| {
            let image = inner.leases.image_of(&new.instance);
            // The instance may end meanwhile, and its image be removed with it.
            let lease = image.map(|image| inner.images.lease(&image).ok_or(SnapshotFault::Gone));
            let _lease = lease.transpose()?;
            let taken = inner.node.snapshot(&wanted(&new, image)?);
            inner.bases.follow(inner.node.snapshots(), &inner.images);
            let taken = taken.map_err(|error| match error {
                // What its files lie over stays as long as the instance does.
                SnapshotError::Missing(_) => SnapshotFault::Gone,
                other => fault(&other),
            })?;
            Ok(TakenSnapshot { size_bytes: taken.size_bytes, paused: taken.paused })
        };
        Box::pin(async move {
            let _turn = self.0.taking.take(&workspace).await;
            self.on_node(take).await
        })
    }

    fn offload<'a>(
        &'a self,
        workspace: &'a str,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), SnapshotFault>> {
        Box::pin(async move {
            let name = name(id).map_err(|error| SnapshotFault::Broken(chain(&error)))?;
            self.offload_snapshot(workspace, name).await.map_err(|error| fault(&error))
        })
    }

    fn is_here(&self, id: &ResourceId) -> bool {
        // It is not worth waiting for one that does not exist.
        name(id).is_ok_and(|name| self.0.node.snapshots().is_here(&name))
    }

    fn fetch<'a>(
        &'a self,
        workspace: &'a str,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), SnapshotFault>> {
        Box::pin(async move {
            let name = name(id).map_err(|error| SnapshotFault::Broken(chain(&error)))?;
            let fetched = self.fetch_snapshot(workspace, name).await;
            fetched.map(drop).map_err(|error| fault(&error))
        })
    }

    fn remove<'a>(&'a self, id: &'a ResourceId) -> BoxFuture<'a, Result<(), MachineFault>> {
        let id = id.clone();
        let remove = move |inner: &Inner| {
            // An id that cannot be a name belongs to no snapshot.
            let Ok(name) = name(&id) else { return Ok(()) };
            inner.node.snapshots().remove(&name).map_err(|error| MachineFault(chain(&error)))
        };
        Box::pin(self.on_node(remove))
    }

    fn base(&self, id: &ResourceId) -> Base {
        let inner = &self.0;
        // An id that cannot be a name is refused at the launch.
        let Ok(name) = name(id) else { return Base::Unnoted };
        if !inner.node.snapshots().has(&name) {
            return Base::Gone;
        }
        match Below::of(&name, inner.node.snapshots(), &inner.images) {
            Ok(Below::Image(_)) => Base::Kept,
            Ok(Below::Unnoted) => Base::Unnoted,
            Ok(Below::Lost(_)) => Base::Lost,
            Err(error) => {
                tracing::error!(error = chain(&error), snapshot = %name, "what it lies over cannot be read");
                Base::Lost
            }
        }
    }

    fn list(&self) -> Vec<KeptSnapshot> {
        let kept = |snapshot: node::Snapshot| KeptSnapshot {
            id: ResourceId::known(snapshot.name.as_str()),
            size_bytes: snapshot.size_bytes,
        };
        self.0.node.snapshots().list().into_iter().map(kept).collect()
    }
}
