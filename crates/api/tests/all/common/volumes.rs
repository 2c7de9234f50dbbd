//! A store of volumes and drives that only pretends to keep them, with as much room as a test sets.

use control::drive_store::{DriveFault, DriveStore, NewDrive};
use control::machine::MachineFault;
use control::volume_store::{KeptCopy, KeptVolume, NewVolume, VolumeFault, VolumeStore};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use types::Timestamp;
use types::instance::{DriveMount, InstanceName, VolumeName, VolumeSource};

#[derive(Clone)]
pub struct PretendedVolumes {
    room_mb: u32,
    kept: Arc<Mutex<BTreeMap<VolumeName, u32>>>,
    origins: Arc<Mutex<BTreeMap<VolumeName, VolumeName>>>,
    /// What an object service has, if there is one.
    copies: Option<Arc<Mutex<BTreeMap<VolumeName, Copied>>>>,
    /// Whether volumes with copies count as unused.
    releases: Arc<AtomicBool>,
    /// Drives mounted in instances.
    pub mounted: Arc<Mutex<Vec<(InstanceName, DriveMount)>>>,
    /// The files of drives that were opened.
    folders: Arc<Mutex<BTreeMap<VolumeName, tempfile::TempDir>>>,
}

/// A copy at the object service: its digest, and the workspace whose it is.
#[derive(Clone)]
struct Copied {
    digest: String,
    workspace: String,
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
            copies: None,
            releases: Arc::default(),
            mounted: Arc::default(),
            folders: Arc::default(),
        }
    }

    /// Adds an object service.
    pub fn with_service(self) -> Self {
        Self { copies: Some(Arc::default()), ..self }
    }

    /// From now on, volumes with copies count as unused.
    pub fn release_unused(&self) {
        self.releases.store(true, Ordering::Relaxed);
    }

    /// Returns another machine's volumes, with the same object service.
    pub fn other_machine(&self) -> Self {
        Self { copies: self.copies.clone(), ..Self::new(self.room_mb) }
    }

    /// Returns the names of what the object service has.
    pub fn copied(&self) -> Vec<VolumeName> {
        self.copies
            .iter()
            .flat_map(|copies| copies.lock().keys().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Leaves a copy that no row names, as a killed server would.
    pub fn leave_copy(&self, name: &VolumeName) {
        self.copy(name, "main");
    }

    /// Puts a copy, and returns its digest.
    pub fn copy(&self, name: &VolumeName, workspace: &str) -> Option<String> {
        let digest = format!("digest of {name}");
        let copied = Copied { digest: digest.clone(), workspace: workspace.to_owned() };
        self.copies.as_ref()?.lock().insert(name.clone(), copied);
        Some(digest)
    }

    /// Returns a volume's size, fetching it first if only the service has it.
    fn find(&self, source: &VolumeSource) -> Result<u32, VolumeFault> {
        if let Some(size_mb) = self.size_mb(&source.name) {
            return Ok(size_mb);
        }
        let copy = source.copy.as_ref().ok_or(VolumeFault::SourceGone)?;
        let copies = self.copies.as_ref().expect("a service");
        let there = copies.lock().get(&source.name).map(|copied| copied.digest.clone());
        if there.as_ref() != Some(&copy.digest) {
            return Err(VolumeFault::Broken("the object is gone".to_owned()));
        }
        self.put(&source.name, copy.size_mb).map(|()| copy.size_mb)
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
    fn make(&self, new: NewVolume) -> BoxFuture<'_, Result<(), VolumeFault>> {
        Box::pin(async move {
            if let Some(origin) = &new.from {
                let needs_mb = self.find(origin)?;
                if needs_mb > new.size_mb {
                    return Err(VolumeFault::TooSmall { size_mb: new.size_mb, needs_mb });
                }
                self.origins.lock().insert(new.name.clone(), origin.name.clone());
            }
            self.put(&new.name, new.size_mb)
        })
    }

    fn grow<'a>(
        &'a self,
        name: &'a VolumeName,
        size_mb: u32,
    ) -> BoxFuture<'a, Result<(), VolumeFault>> {
        Box::pin(async move { self.put(name, size_mb) })
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> BoxFuture<'a, Result<(), MachineFault>> {
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

    fn has_image_below(&self, disk: &VolumeName) -> bool {
        self.kept.lock().contains_key(disk)
    }

    fn put_copy<'a>(
        &'a self,
        workspace: &'a str,
        name: &'a VolumeName,
    ) -> BoxFuture<'a, Result<Option<String>, VolumeFault>> {
        Box::pin(async move { Ok(self.copy(name, workspace)) })
    }

    fn copies(&self) -> BoxFuture<'_, Result<Option<Vec<KeptCopy>>, VolumeFault>> {
        let kept = |(name, copied): (&VolumeName, &Copied)| KeptCopy {
            workspace: copied.workspace.clone(),
            name: name.clone(),
        };
        let found = self.copies.as_ref().map(|copies| copies.lock().iter().map(kept).collect());
        Box::pin(async { Ok(found) })
    }

    fn remove_copy<'a>(&'a self, copy: &'a KeptCopy) -> BoxFuture<'a, Result<(), VolumeFault>> {
        if let Some(copies) = &self.copies {
            copies.lock().remove(&copy.name);
        }
        Box::pin(async { Ok(()) })
    }

    fn release<'a>(
        &'a self,
        name: &'a VolumeName,
        _: Timestamp,
    ) -> BoxFuture<'a, Result<(), VolumeFault>> {
        if self.releases.load(Ordering::Relaxed) {
            self.kept.lock().remove(name);
        }
        Box::pin(async { Ok(()) })
    }
}

impl DriveStore for PretendedVolumes {
    fn make(&self, new: NewDrive) -> BoxFuture<'_, Result<(), VolumeFault>> {
        Box::pin(async move { self.put(&new.name, DRIVE_MB) })
    }

    fn remove<'a>(&'a self, name: &'a VolumeName) -> BoxFuture<'a, Result<(), MachineFault>> {
        VolumeStore::remove(self, name)
    }

    fn remove_folder<'a>(
        &'a self,
        _: &'a VolumeName,
        path: &'a str,
    ) -> BoxFuture<'a, Result<bool, DriveFault>> {
        Box::pin(async move { Ok(path == "/there") })
    }

    fn mount<'a>(
        &'a self,
        instance: &'a InstanceName,
        mount: DriveMount,
    ) -> BoxFuture<'a, Result<(), DriveFault>> {
        Box::pin(async move {
            if mount.place == REFUSED {
                return Err(DriveFault::Place("not there".into()));
            }
            let mounted = (instance.clone(), mount);
            let mut all = self.mounted.lock();
            if !all.contains(&mounted) {
                all.push(mounted);
            }
            Ok(())
        })
    }

    fn unmount<'a>(
        &'a self,
        instance: &'a InstanceName,
        drive: &'a VolumeName,
        place: &'a str,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<(), DriveFault>> {
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
