//! What callers can ask for about drives.

use super::Node;
use crate::drives::{Drives, Mounting};
use crate::error::{DriveError, VolumeError};
use crate::names::Owner;
use crate::volumes::NewVolume;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use types::instance::{DriveMount, InstanceName, VolumeName};

impl Node {
    /// Makes a drive, unless it exists already. It is complete and on disk when this returns.
    pub fn make_drive(&self, name: &VolumeName, owner: &Owner) -> Result<(), VolumeError> {
        let size_mb = self.shared.drive_mb.load(Ordering::Relaxed);
        let new = NewVolume { name: name.clone(), owner: owner.clone(), size_mb, from: None };
        self.volumes().make(&new)
    }

    /// Removes a drive for good. Instances that have it mounted keep it until that mount ends.
    pub fn remove_drive(&self, name: &VolumeName) -> Result<(), VolumeError> {
        self.shared.stores.drives.forget(name);
        self.volumes().remove(name)
    }

    /// Returns the root folder of a drive. Its files have the owners that instances see.
    pub fn drive_root(&self, name: &VolumeName) -> Result<OwnedFd, DriveError> {
        self.shared.stores.drives.root(self.volumes(), name)
    }

    /// Removes a folder of a drive with everything in it. Returns whether it existed.
    pub fn remove_drive_folder(&self, name: &VolumeName, path: &str) -> Result<bool, DriveError> {
        self.shared.stores.drives.remove_folder(self.volumes(), name, path)
    }

    /// Mounts a part of a drive in an instance that runs or sleeps, unless it is mounted there
    /// already.
    pub fn mount_drive(&self, id: &InstanceName, mount: &DriveMount) -> Result<(), DriveError> {
        self.mounting(id, |drives, instance| drives.mount(self.volumes(), instance, mount))
    }

    /// Unmounts a part of a drive from an instance. `others` are further places where the instance
    /// may legitimately have the same drive mounted.
    pub fn unmount_drive(
        &self,
        id: &InstanceName,
        drive: &VolumeName,
        place: &str,
        others: &[String],
    ) -> Result<(), DriveError> {
        let places = (place, others);
        self.mounting(id, |drives, instance| {
            drives.unmount(self.volumes(), instance, drive, places)
        })
    }

    fn mounting(
        &self,
        id: &InstanceName,
        work: impl FnOnce(&Drives, &Mounting<'_>) -> Result<(), DriveError>,
    ) -> Result<(), DriveError> {
        let instance = self.find(id).map_err(|_| DriveError::Gone)?;
        let process = instance.body.process().ok_or(DriveError::Gone)?;
        let mounting = Mounting { pid: process.pid, process: process.pidfd.as_fd() };
        work(&self.shared.stores.drives, &mounting)
    }
}
