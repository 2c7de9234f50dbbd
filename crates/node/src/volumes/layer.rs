//! Writable layers that stay: what an instance wrote over its image is there again in the next
//! instance over the same image.
//!
//! ```text
//! over    names what the layer lies over, as its caller does
//! under   the snapshot among that, if there is one
//! upper/  what the instance wrote
//! work/   of the kernel
//! ```
//!
//! No instance sees more of it than the upper folder.

use super::image::Image;
use super::{Held, Volumes};
use crate::error::VolumeError;
use crate::file_system::Purpose;
use crate::snapshots::SnapshotName;
use crate::spec::Owner;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, openat, syncfs, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use types::instance::VolumeName;

/// A layer without it is only half made.
const OVER: &str = "over";
const UNDER: &str = "under";
const TEXT_BYTES_MAX: u64 = 4_096;

/// A layer as an instance asks for it.
pub(crate) struct KeptLayer<'s> {
    pub(crate) volume: &'s VolumeName,
    pub(crate) owner: &'s Owner,
    pub(crate) size_mb: u32,
    pub(crate) over: &'s str,
}

/// One that there is, mounted.
pub(crate) struct FoundLayer {
    pub(crate) mount: OwnedFd,
    pub(crate) under: Under,
}

/// Which snapshot a layer lies over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Under {
    Nothing,
    Snapshot(SnapshotName),
    /// An earlier release made it, for which it was always the one that the instance asks for.
    Unsaid,
}

/// One that is being made, mounted. Without a name, it is gone with this value.
pub(crate) struct NewLayer<'v> {
    volumes: &'v Volumes,
    name: &'v VolumeName,
    over: &'v str,
    image: Image,
    mount: OwnedFd,
    held: Held,
}

impl Volumes {
    /// The layer that there is. One that lies over something else is removed.
    pub(crate) fn find_layer(
        &self,
        wanted: &KeptLayer<'_>,
    ) -> Result<Option<FoundLayer>, VolumeError> {
        let KeptLayer { volume, size_mb, over, .. } = *wanted;
        if self.size_mb(volume).is_none() {
            return Ok(None);
        }
        self.grow(volume, size_mb)?;
        let mount = self.attach(volume)?;
        if read(mount.as_fd(), OVER)?.is_some_and(|lies_over| lies_over == over) {
            let under = under(mount.as_fd())?;
            return Ok(Some(FoundLayer { mount, under }));
        }
        drop(mount);
        self.remove(volume)?;
        Ok(None)
    }

    /// An empty one, or one that begins as a disk was, and is as large as that at least.
    pub(crate) fn begin_layer<'v>(
        &'v self,
        wanted: &KeptLayer<'v>,
        from: Option<&Path>,
    ) -> Result<NewLayer<'v>, VolumeError> {
        let KeptLayer { volume, owner, size_mb, over } = *wanted;
        let needs_mb = from.map(super::image::size_mb).transpose()?;
        let size_mb = needs_mb.map_or(size_mb, |needs_mb| size_mb.max(needs_mb));
        let held = self.take(owner, size_mb, self.place_of_clones())?;
        let folder = self.folder_of(&held)?;
        let image = match from {
            None => Image::make(&folder, size_mb, Purpose::Cloned)?,
            Some(source) => Image::copy(&folder, source, size_mb)?,
        };
        let mount = image.attach()?;
        for name in [OVER, UNDER] {
            match unlinkat(&mount, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(NewLayer { volumes: self, name: volume, over, image, mount, held })
    }
}

impl NewLayer<'_> {
    /// Where its files go.
    pub(crate) fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Gives it its name. It is on the disk when this returns.
    pub(crate) fn finish(self, under: Option<&SnapshotName>) -> Result<OwnedFd, VolumeError> {
        let Self { volumes, name, over, image, mount, held } = self;
        write(mount.as_fd(), UNDER, under.map_or("", SnapshotName::as_str))?;
        write(mount.as_fd(), OVER, over)?;
        // With that, the device has what is in the file on the disk.
        syncfs(crate::file_system::top(mount.as_fd())?).map_err(io::Error::from)?;
        match volumes.keep(name, &image, held)? {
            true => Ok(mount),
            // Somebody else made it meanwhile, and has it.
            false => Err(VolumeError::InUse(name.clone())),
        }
    }
}

fn under(layer: BorrowedFd<'_>) -> io::Result<Under> {
    Ok(match read(layer, UNDER)? {
        None => Under::Unsaid,
        Some(text) if text.is_empty() => Under::Nothing,
        Some(text) => Under::Snapshot(SnapshotName::new(text).map_err(io::Error::other)?),
    })
}

fn read(layer: BorrowedFd<'_>, name: &str) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match openat(layer, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut text = String::new();
    File::from(file).take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn write(layer: BorrowedFd<'_>, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(openat(layer, name, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(text.as_bytes())
}
