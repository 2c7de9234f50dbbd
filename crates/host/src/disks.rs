//! Keeps the images below the disks of sandboxes. What is on a disk was written over one image, so
//! it belongs to that image for as long as the disk exists, whatever the image's name has come to
//! mean: with another one the two would form a tree that never existed.
//!
//! Each disk has a note of its image, because the leases have to be taken again before any image is
//! removed, and a disk has to be mounted to tell. A disk that an earlier release made is asked once.

use files::Readers;
use images::{Digest, Lease, Store};
use node::{VolumeError, VolumeName, Volumes};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};
use types::chain;
use types::instance::KeptFor;

pub(crate) struct Disks {
    folder: PathBuf,
    below: Mutex<HashMap<VolumeName, Below>>,
}

struct Below {
    image: Digest,
    /// `None` if the image is lost.
    _lease: Option<Lease>,
}

impl Disks {
    /// Keeps the images below the disks that there are, and removes the notes of others.
    pub(crate) fn open(folder: PathBuf, volumes: &Volumes, images: &Store) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let disks = Self { folder, below: Mutex::default() };
        for entry in fs::read_dir(&disks.folder)? {
            let path = entry?.path();
            match noted(&path)?.filter(|(disk, _)| volumes.size_mb(disk).is_some()) {
                Some((disk, image)) => disks.hold(disk, image, images),
                None => fs::remove_file(&path)?,
            }
        }
        for disk in volumes.list().into_iter().map(|volume| volume.name) {
            let is_disk = matches!(disk.kept_for(), Some(KeptFor::Root(_)));
            if is_disk && let Err(error) = disks.find(&disk, volumes, images) {
                // It is asked again when its sandbox starts, and no other is concerned.
                tracing::error!(error = chain(&error), %disk, "what a disk lies over cannot be read");
            }
        }
        Ok(disks)
    }

    /// Returns the image below a disk, if there is such a disk. One without a note is asked itself.
    pub(crate) fn find(
        &self,
        disk: &VolumeName,
        volumes: &Volumes,
        images: &Store,
    ) -> Result<Option<Digest>, VolumeError> {
        if let Some(image) = self.below(disk) {
            return Ok(Some(image));
        }
        if volumes.size_mb(disk).is_none() {
            return Ok(None);
        }
        let image = volumes.over(disk)?.and_then(|over| image_in(&over));
        let image = image.ok_or_else(|| io::Error::other("it names no image"))?;
        self.begin(disk, image, images)?;
        Ok(Some(image))
    }

    /// Returns the image below a disk.
    pub(crate) fn below(&self, disk: &VolumeName) -> Option<Digest> {
        self.below.lock().get(disk).map(|below| below.image)
    }

    /// Keeps the image of a disk, which is perhaps about to be made. A note of it is on disk when
    /// this returns.
    pub(crate) fn begin(&self, disk: &VolumeName, image: Digest, images: &Store) -> io::Result<()> {
        if self.below(disk) != Some(image) {
            let path = self.folder.join(disk.as_str());
            files::replace(&path, Readers::Owner, image.to_string().as_bytes())?;
        }
        self.hold(disk.clone(), image, images);
        Ok(())
    }

    /// Lets go of the image of a disk that is gone.
    pub(crate) fn forget(&self, disk: &VolumeName) {
        if self.below.lock().remove(disk).is_none() {
            return;
        }
        if let Err(error) = fs::remove_file(self.folder.join(disk.as_str())) {
            tracing::warn!(%error, %disk, "the note of a removed disk stays until the next start");
        }
    }

    fn hold(&self, disk: VolumeName, image: Digest, images: &Store) {
        let lease = images.lease(&image);
        if lease.is_none() {
            tracing::warn!(%disk, %image, "the image below a disk is not there");
        }
        self.below.lock().insert(disk, Below { image, _lease: lease });
    }
}

/// Identifies what a disk lies over: an image, and perhaps a snapshot above it.
pub(crate) fn over(image: &Digest, snapshot: Option<&str>) -> String {
    let snapshot = snapshot.map(|name| format!("+{name}"));
    format!("{image}{}", snapshot.unwrap_or_default())
}

fn image_in(over: &str) -> Option<Digest> {
    over.split('+').next()?.parse().ok()
}

/// Reads a note. `None` if it is none, such as the rest of one that was being written.
fn noted(path: &Path) -> io::Result<Option<(VolumeName, Digest)>> {
    let name = path.file_name().and_then(|name| VolumeName::new(name.to_str()?).ok());
    let image = String::from_utf8_lossy(&fs::read(path)?).trim().parse().ok();
    Ok(name.zip(image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_says_which_image_it_lies_over() {
        let image = Digest::of(b"image");
        for snapshot in [None, Some("res_snapshot")] {
            assert_eq!(image_in(&over(&image, snapshot)), Some(image));
        }
        assert_eq!(image_in("image+snapshot"), None);
    }
}
