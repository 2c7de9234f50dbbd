//! What mounts drives for the data plane.

use futures_util::future::BoxFuture;
use types::drive_mounts::{DriveOrder, DriveRefusal, MountedDrive};
use types::ids::ResourceId;

/// Mounts drives in sandboxes. The sandbox is awake, and stays awake, while something is changed.
pub trait Drives: Send + Sync + 'static {
    fn list<'a>(
        &'a self,
        sandbox: &'a ResourceId,
    ) -> BoxFuture<'a, Result<Vec<MountedDrive>, DriveRefusal>>;

    fn mount<'a>(
        &'a self,
        sandbox: &'a ResourceId,
        order: DriveOrder,
    ) -> BoxFuture<'a, Result<MountedDrive, DriveRefusal>>;

    /// Ends the mount at a path.
    fn unmount<'a>(
        &'a self,
        sandbox: &'a ResourceId,
        place: &'a str,
    ) -> BoxFuture<'a, Result<(), DriveRefusal>>;
}
