//! A store of volumes and drives that only pretends to keep them, with as much room as a test sets.

use control::drive_store::{DriveFault, DriveStore, KeptDrive, NewDrive};
use control::machine::{MachineFault, Wait};
use control::volume_store::{KeptVolume, NewVolume, VolumeFault, VolumeStore};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::instance::{DriveMount, InstanceName, VolumeName};

#[derive(Clone)]
pub struct PretendedVolumes {
    room_mb: u32,
    kept: Arc<Mutex<BTreeMap<VolumeName, u32>>>,
    origins: Arc<Mutex<BTreeMap<VolumeName, VolumeName>>>,
    /// Drives mounted in instances.
    pub mounted: Arc<Mutex<Vec<(InstanceName, DriveMount)>>>,
    /// The files of drives that were opened.
    folders: Arc<Mutex<BTreeMap<VolumeName, tempfile::TempDir>>>,
}

/// Size of each drive.
pub const DRIVE_MB: u32 = 100;
/// A path where nothing can be mounted, and one from which nothing can be unmounted.
pub const REFUSED: &str = "/mnt/refused";
pub const BUSY: &str = "/mnt/busy";

impl PretendedVolumes {
    pub fn new(room_mb: u32) -> Self {
        Self {
            room_mb,
            kept: Arc::default(),
            origins: Arc::default(),
            mounted: Arc::default(),
            folders: Arc::default(),
        }
    }

    /// Returns the size of each volume in megabytes.
    pub fn sizes(&self) -> Vec<u32> {
        self.kept.lock().values().copied().collect()
    }

    pub fn names(&self) -> Vec<VolumeName> {
        self.kept.lock().keys().cloned().collect()
    }

    /// Leaves a volume without a row, as a killed server would.
    pub fn leave(&self, name: &VolumeName) {
        self.kept.lock().insert(name.clone(), 1);
    }

    /// Makes a volume that others begin with, as a builder does.
    pub fn fill(&self, name: &VolumeName, size_mb: u32) -> Result<(), VolumeFault> {
        self.put(name, size_mb)
    }

    /// Returns what each volume began with.
    pub fn origins(&self) -> BTreeMap<VolumeName, VolumeName> {
        self.origins.lock().clone()
    }

    fn put(&self, name: &VolumeName, size_mb: u32) -> Result<(), VolumeFault> {
        let mut kept = self.kept.lock();
        let others: u32 = kept.iter().filter(|(one, _)| *one != name).map(|(_, mb)| mb).sum();
        if others + size_mb > self.room_mb {
            return Err(VolumeFault::OverShare(format!("at most {} MB of volumes", self.room_mb)));
        }
        kept.insert(name.clone(), size_mb);
        Ok(())
    }
}

impl VolumeStore for PretendedVolumes {
    fn make(&self, new: NewVolume) -> Wait<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if let Some(origin) = &new.from {
                let needs_mb = self.size_mb(&origin.name).ok_or(VolumeFault::SourceGone)?;
                if needs_mb > new.size_mb {
                    return Err(VolumeFault::TooSmall { size_mb: new.size_mb, needs_mb });
                }
                self.origins.lock().insert(new.name.clone(), origin.name.clone());
            }
            self.put(&new.name, new.size_mb)
        })
    }

    fn grow<'a>(&'a self, name: &'a VolumeName, size_mb: u32) -> Wait<'a, Result<(), VolumeFault>> {
        Box::pin(async move { self.put(name, size_mb) })
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> Wait<'a, Result<(), MachineFault>> {
        self.kept.lock().remove(name);
        Box::pin(async { Ok(()) })
    }

    fn list(&self) -> Vec<KeptVolume> {
        let kept = self.kept.lock();
        kept.iter().map(|(name, mb)| KeptVolume { name: name.clone(), size_mb: *mb }).collect()
    }

    fn size_mb(&self, name: &VolumeName) -> Option<u32> {
        self.kept.lock().get(name).copied()
    }
}

impl DriveStore for PretendedVolumes {
    fn make(&self, new: NewDrive) -> Wait<'_, Result<(), VolumeFault>> {
        Box::pin(async move { self.put(&new.name, DRIVE_MB) })
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> Wait<'a, Result<(), MachineFault>> {
        VolumeStore::remove(self, name)
    }

    fn list(&self) -> Vec<KeptDrive> {
        Vec::new()
    }

    fn remove_folder<'a>(
        &'a self,
        _: &'a VolumeName,
        path: &'a str,
    ) -> Wait<'a, Result<bool, DriveFault>> {
        Box::pin(async move { Ok(path == "/there") })
    }

    fn mount<'a>(
        &'a self,
        instance: &'a InstanceName,
        mount: DriveMount,
    ) -> Wait<'a, Result<(), DriveFault>> {
        Box::pin(async move {
            if mount.place == REFUSED {
                return Err(DriveFault::Place("not there".into()));
            }
            self.mounted.lock().push((instance.clone(), mount));
            Ok(())
        })
    }

    fn unmount<'a>(
        &'a self,
        instance: &'a InstanceName,
        drive: &'a VolumeName,
        place: &'a str,
        _: &'a [String],
    ) -> Wait<'a, Result<(), DriveFault>> {
        Box::pin(async move {
            if place == BUSY {
                return Err(DriveFault::InUse);
            }
            self.mounted
                .lock()
                .retain(|(of, it)| of != instance || it.drive != *drive || it.place != place);
            Ok(())
        })
    }

    fn open_root(&self, name: &VolumeName) -> std::io::Result<std::os::fd::OwnedFd> {
        if !self.kept.lock().contains_key(name) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let mut folders = self.folders.lock();
        if !folders.contains_key(name) {
            folders.insert(name.clone(), tempfile::tempdir()?);
        }
        Ok(std::fs::File::open(folders[name].path())?.into())
    }
}
