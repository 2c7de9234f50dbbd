//! What the management side asks of a machine that keeps drives: file systems that many instances
//! have at the same time, and get and give back while they run. Which rows ask for them, and who may
//! have them, is decided in [`crate::drives`].

use crate::machine::{MachineFault, Wait};
use crate::volume_store::VolumeFault;
use std::io;
use std::os::fd::OwnedFd;
use types::ids::ResourceId;
use types::instance::{DriveMount, InstanceName, KeptFor, VolumeName};

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDrive {
    pub name: VolumeName,
    /// Whose it is: the machine's disk is divided between workspaces.
    pub workspace: String,
}

/// One that a machine keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDrive {
    pub name: VolumeName,
    /// The most that it can hold.
    pub size_mb: u32,
    /// What it takes of the disk by now.
    pub used_bytes: u64,
}

pub trait DriveStore: Send + Sync + 'static {
    /// Makes one, unless it is there. It survives the machine's power when this answers.
    fn make(&self, new: NewDrive) -> Wait<'_, Result<(), VolumeFault>>;

    /// Removes one for good. Whoever has it mounted still does so until the end of that mount. Without
    /// one there is nothing to do.
    fn remove<'a>(&'a self, name: &'a VolumeName) -> Wait<'a, Result<(), MachineFault>>;

    fn list(&self) -> Vec<KeptDrive>;

    /// Removes a folder of a drive with all that is in it. Answers whether there was one.
    fn remove_folder<'a>(
        &'a self,
        name: &'a VolumeName,
        path: &'a str,
    ) -> Wait<'a, Result<bool, DriveFault>>;

    /// Gives an instance that runs or sleeps a part of a drive. The same once more changes nothing.
    fn mount<'a>(
        &'a self,
        instance: &'a InstanceName,
        mount: DriveMount,
    ) -> Wait<'a, Result<(), DriveFault>>;

    /// Takes one away again. What is not mounted there needs nothing to be done. `others` are the places
    /// where the instance may have the same drive all the same.
    fn unmount<'a>(
        &'a self,
        instance: &'a InstanceName,
        drive: &'a VolumeName,
        place: &'a str,
        others: &'a [String],
    ) -> Wait<'a, Result<(), DriveFault>>;

    /// The topmost folder of a drive, for whoever serves it to others than instances. Blocks for some
    /// milliseconds if nobody uses the drive. Its files have the owners that they have inside of
    /// instances; nothing that is in it may be trusted, links above all.
    fn open_root(&self, drive: &VolumeName) -> io::Result<OwnedFd>;
}

/// As a machine names the drive of a row.
pub fn name_of(id: &ResourceId) -> VolumeName {
    VolumeName::of(&KeptFor::Drive(id.clone()))
}

#[derive(Debug, thiserror::Error)]
pub enum DriveFault {
    /// What is asked for cannot be mounted there; the text says why.
    #[error("{0}")]
    Place(String),
    /// Something in the instance has files of it open.
    #[error("it is in use: something in the sandbox has files of it open, or works in it")]
    InUse,
    /// There is no such instance any more.
    #[error("the instance is gone")]
    Gone,
    #[error("{0}")]
    Broken(String),
}
