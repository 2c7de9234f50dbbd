//! This machine's drives, as `control` sees them.

use crate::refusals::no_space;
use crate::volumes::fault;
use crate::{Inner, Interrupted, LocalMachine};
use control::drive_store::{DriveFault, DriveStore, NewDrive};
use control::machine::MachineFault;
use control::volume_store::VolumeFault;
use futures_util::future::BoxFuture;
use node::{DriveError, DriveMount, InstanceName, Owner, VolumeError, VolumeName};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use types::chain;

impl From<Interrupted> for DriveFault {
    fn from(interrupted: Interrupted) -> Self {
        Self::Broken(interrupted.to_string())
    }
}

fn drive_fault(error: &DriveError) -> DriveFault {
    match error {
        DriveError::Place(why) => DriveFault::Place(why.clone()),
        DriveError::InUse => DriveFault::InUse,
        DriveError::Gone => DriveFault::Gone,
        other => match no_space(other) {
            Some(why) => DriveFault::Full(why),
            None => DriveFault::Broken(chain(other)),
        },
    }
}

/// Returns what a caller can do about a drive that cannot be opened.
fn kind_of(error: &DriveError) -> ErrorKind {
    match error {
        DriveError::Volume(VolumeError::Missing(_)) => ErrorKind::NotFound,
        other if no_space(other).is_some() => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    }
}

impl DriveStore for LocalMachine {
    fn make(&self, new: NewDrive) -> BoxFuture<'_, Result<(), VolumeFault>> {
        let make = move |inner: &Inner| {
            let owner =
                Owner::new(new.workspace).map_err(|error| VolumeFault::Broken(chain(&error)))?;
            inner.node.make_drive(&new.name, &owner).map_err(|error| fault(&error))
        };
        Box::pin(self.on_node(make))
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> BoxFuture<'a, Result<(), MachineFault>> {
        let name = name.clone();
        let remove = move |inner: &Inner| {
            inner.node.remove_drive(&name).map_err(|error| MachineFault(chain(&error)))
        };
        Box::pin(self.on_node(remove))
    }

    fn remove_folder<'a>(
        &'a self,
        name: &'a VolumeName,
        path: &'a str,
    ) -> BoxFuture<'a, Result<bool, DriveFault>> {
        let (name, path) = (name.clone(), path.to_owned());
        let work = move |inner: &Inner| {
            let removed = inner.node.remove_drive_folder(&name, &path);
            removed.map_err(|error| drive_fault(&error))
        };
        Box::pin(self.on_node(work))
    }

    fn mount<'a>(
        &'a self,
        instance: &'a InstanceName,
        mount: DriveMount,
    ) -> BoxFuture<'a, Result<(), DriveFault>> {
        let id = instance.clone();
        let work = move |inner: &Inner| {
            inner.node.mount_drive(&id, &mount).map_err(|error| drive_fault(&error))
        };
        Box::pin(self.on_node(work))
    }

    fn unmount<'a>(
        &'a self,
        instance: &'a InstanceName,
        drive: &'a VolumeName,
        place: &'a str,
        others: &'a [String],
    ) -> BoxFuture<'a, Result<(), DriveFault>> {
        let (id, drive, place) = (instance.clone(), drive.clone(), place.to_owned());
        let others = others.to_vec();
        let work = move |inner: &Inner| {
            let unmounted = inner.node.unmount_drive(&id, &drive, &place, &others);
            unmounted.map_err(|error| drive_fault(&error))
        };
        Box::pin(self.on_node(work))
    }

    fn open_root(&self, drive: &VolumeName) -> io::Result<OwnedFd> {
        self.0.node.drive_root(drive).map_err(|error| io::Error::new(kind_of(&error), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_drive_cannot_be_opened_is_kept() {
        let mounting =
            |kind: ErrorKind| kind_of(&DriveError::Volume(VolumeError::Machine(kind.into())));
        assert_eq!(mounting(ErrorKind::StorageFull), ErrorKind::StorageFull);
        assert_eq!(mounting(ErrorKind::InvalidInput), ErrorKind::Other);
        let name = VolumeName::new("drive-one").unwrap();
        assert_eq!(kind_of(&VolumeError::Missing(name).into()), ErrorKind::NotFound);
    }
}
