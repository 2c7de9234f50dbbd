//! What the control plane asks of a machine that keeps drives. Drives are file systems that many
//! instances share, and that are mounted and unmounted while these run. Which rows ask for drives,
//! and who may have them, is decided in [`crate::drives`].

use crate::machine_fault::MachineFault;
use crate::volume_store::VolumeFault;
use futures_util::future::BoxFuture;
use std::io;
use std::os::fd::OwnedFd;
use types::ids::ResourceId;
use types::instance::{DriveMount, InstanceName, KeptFor, VolumeName};

/// Which drive to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDrive {
    pub name: VolumeName,
    /// The owning workspace. The machine's disk is divided between workspaces.
    pub workspace: String,
}

pub trait DriveStore: Send + Sync + 'static {
    /// Makes a drive, unless it exists. Once this returns, it survives a power cut.
    fn make(&self, new: NewDrive) -> BoxFuture<'_, Result<(), VolumeFault>>;

    /// Removes a drive for good. Existing mounts of it keep working until they end. Does nothing if
    /// there is no such drive.
    fn remove<'a>(&'a self, name: &'a VolumeName) -> BoxFuture<'a, Result<(), MachineFault>>;

    /// Removes a folder of a drive with everything in it. Returns whether it existed.
    fn remove_folder<'a>(
        &'a self,
        name: &'a VolumeName,
        path: &'a str,
    ) -> BoxFuture<'a, Result<bool, DriveFault>>;

    /// Mounts a part of a drive in an instance that runs or sleeps. Repeating the call changes
    /// nothing.
    fn mount<'a>(
        &'a self,
        instance: &'a InstanceName,
        mount: DriveMount,
    ) -> BoxFuture<'a, Result<(), DriveFault>>;

    /// Unmounts a drive; does nothing if it is not mounted there. `others` are the places where the
    /// instance may have the same drive mounted as well.
    fn unmount<'a>(
        &'a self,
        instance: &'a InstanceName,
        drive: &'a VolumeName,
        place: &'a str,
        others: &'a [String],
    ) -> BoxFuture<'a, Result<(), DriveFault>>;

    /// Opens the root folder of a drive, for serving it to others than instances. Blocks for some
    /// milliseconds if nobody uses the drive. Files have the owners that they have inside
    /// instances. Nothing in the drive can be trusted, links least of all. Fails with `NotFound` if
    /// this machine does not have the drive, and with `StorageFull` if it has no room to open it.
    fn open_root(&self, drive: &VolumeName) -> io::Result<OwnedFd>;
}

/// Returns a machine's name for the drive of a row.
pub fn name_of(id: &ResourceId) -> VolumeName {
    VolumeName::of(&KeptFor::Drive(id.clone()))
}

#[derive(Debug, thiserror::Error)]
pub enum DriveFault {
    /// It cannot be mounted there; the text says why.
    #[error("{0}")]
    Place(String),
    /// Something in the instance has files of it open.
    #[error("it is in use: something in the sandbox has files of it open, or works in it")]
    InUse,
    /// The instance no longer exists.
    #[error("the instance is gone")]
    Gone,
    /// The machine has no room left.
    #[error("{0}")]
    Full(String),
    #[error("{0}")]
    Broken(String),
}
