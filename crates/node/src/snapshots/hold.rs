//! Keeps snapshots, and those below them, while something stands on them.

use super::Snapshots;
use super::about::{About, Sort};
use super::image::{Image, Layer};
use super::paths::LAYER;
use super::states::CHAIN_MAX;
use crate::error::SnapshotError;
use crate::names::{Owner, SnapshotName};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use types::instance::VolumeName;

/// Keeps a snapshot, and those that it lies over, until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(super) snapshots: Arc<Snapshots>,
    pub(crate) name: SnapshotName,
}

impl Hold {
    /// Makes another hold of the same snapshot.
    pub(crate) fn again(&self) -> Self {
        if let Some(kept) = self.snapshots.all.lock().kept.get_mut(&self.name) {
            kept.users += 1;
        }
        Self { snapshots: Arc::clone(&self.snapshots), name: self.name.clone() }
    }

    /// Opens the layers of the whole chain, newest first.
    pub(crate) fn layers(&self) -> io::Result<Vec<Layer>> {
        let snapshots = &self.snapshots;
        let layer = |(owner, name, sort): (Owner, SnapshotName, Sort)| match sort {
            Sort::Layer => Ok(Layer::Folder(snapshots.path(&owner, &name).join(LAYER))),
            Sort::Image => Image::open(&snapshots.image(&owner, &name)).map(Layer::Image),
        };
        self.chain().into_iter().map(layer).collect()
    }

    /// Returns the cloned disk, and what that disk lay over. `None` if the snapshot is made of
    /// files.
    pub(crate) fn image(&self) -> Result<Option<(PathBuf, Option<Self>)>, SnapshotError> {
        let all = self.snapshots.all.lock();
        let Some(kept) = all.kept.get(&self.name).filter(|kept| kept.sort == Sort::Image) else {
            return Ok(None);
        };
        let (file, parent) = (self.snapshots.image(&kept.owner, &self.name), kept.parent.clone());
        drop(all);
        let hold = |name: SnapshotName| {
            self.snapshots.hold_again(&name).ok_or(SnapshotError::Missing(name))
        };
        Ok(Some((file, parent.map(hold).transpose()?)))
    }

    /// Records that a disk lies over it, before the disk exists.
    pub(crate) fn add_disk(&self, disk: &VolumeName) -> io::Result<()> {
        let mut all = self.snapshots.all.lock();
        let kept = all.kept.get_mut(&self.name).ok_or(io::ErrorKind::NotFound)?;
        if !kept.disks.contains(disk) {
            About::add_disk(&self.snapshots.path(&kept.owner, &self.name), disk)?;
            kept.disks.insert(disk.clone());
        }
        Ok(())
    }

    /// Returns whether nothing more can lie over it.
    pub(crate) fn is_full(&self) -> bool {
        self.chain().len() >= CHAIN_MAX
    }

    /// Returns the disk space that the whole chain takes.
    pub(crate) fn size_bytes(&self) -> u64 {
        let chain = self.chain();
        let all = self.snapshots.all.lock();
        let sizes = chain.iter().filter_map(|(_, name, _)| Some(all.kept.get(name)?.size_bytes));
        sizes.fold(0, u64::saturating_add)
    }

    pub(super) fn chain(&self) -> Vec<(Owner, SnapshotName, Sort)> {
        let all = self.snapshots.all.lock();
        let mut chain = Vec::new();
        let mut next = Some(&self.name);
        while let Some((name, kept)) = next.and_then(|name| all.kept.get_key_value(name)) {
            chain.push((kept.owner.clone(), name.clone(), kept.sort));
            next = kept.parent.as_ref();
        }
        chain
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(kept) = self.snapshots.all.lock().kept.get_mut(&self.name) {
            kept.users -= 1;
            kept.was_used = true;
        }
        self.snapshots.collect();
    }
}
