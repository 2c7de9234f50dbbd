//! Mounting of drives for the data plane, by direct calls to the control plane in this process.

use control::{Control, drives};
use futures_util::future::BoxFuture;
use gateway::Drives;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;

pub(super) struct LocalDrives(pub(super) Control);

impl Drives for LocalDrives {
    fn list<'a>(
        &'a self,
        sandbox: &'a ResourceId,
    ) -> BoxFuture<'a, Result<Vec<MountedDrive>, DriveRefusal>> {
        Box::pin(drives::list(&self.0, sandbox))
    }

    fn mount<'a>(
        &'a self,
        sandbox: &'a ResourceId,
        order: DriveOrder,
    ) -> BoxFuture<'a, Result<MountedDrive, DriveRefusal>> {
        Box::pin(drives::mount(&self.0, sandbox, order))
    }

    fn unmount<'a>(
        &'a self,
        sandbox: &'a ResourceId,
        place: &'a str,
    ) -> BoxFuture<'a, Result<(), DriveRefusal>> {
        Box::pin(drives::unmount(&self.0, sandbox, place))
    }
}
