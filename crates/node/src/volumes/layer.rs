//! Kept layers: writable layers that stay, so that what an instance wrote over its image is there
//! again for the next instance over the same image.
//!
//! ```text
//! over    identifies what the layer lies over, by the caller's name for it
//! under   the snapshot that is part of that, if there is one
//! upper/  what the instance wrote
//! work/   used by the kernel
//! ```
//!
//! Instances see only the upper folder.

use super::image::Image;
use super::{Held, Volumes};
use crate::error::VolumeError;
use crate::file_system::Purpose;
use crate::names::{Owner, SnapshotName};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, openat, syncfs, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use types::instance::VolumeName;

/// Written last: a layer without it is half made.
const OVER: &str = "over";
const UNDER: &str = "under";
const TEXT_BYTES_MAX: u64 = 4_096;

/// A layer that an instance asks for.
pub(crate) struct KeptLayer<'s> {
    pub(crate) volume: &'s VolumeName,
    pub(crate) owner: &'s Owner,
    pub(crate) size_mb: u32,
    pub(crate) over: &'s str,
}

/// An existing layer, mounted.
pub(crate) struct FoundLayer {
    pub(crate) mount: OwnedFd,
    pub(crate) under: Under,
}

/// Which snapshot a layer lies over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Under {
    Nothing,
    Snapshot(SnapshotName),
    /// Made by an earlier release, with which it was always the snapshot that the instance asks
    /// for.
    Unsaid,
}

/// A layer that is being made, mounted. As long as it has no name, it is removed with this value.
pub(crate) struct NewLayer<'v> {
    volumes: &'v Volumes,
    name: &'v VolumeName,
    over: &'v str,
    image: Image,
    mount: OwnedFd,
    held: Held,
}

impl Volumes {
    /// Mounts the existing layer, if there is one. It has files of a tenant, so one that lies over
    /// something else is refused and stays.
    pub(crate) fn find_layer(
        &self,
        wanted: &KeptLayer<'_>,
    ) -> Result<Option<FoundLayer>, VolumeError> {
        let KeptLayer { volume, size_mb, over, .. } = *wanted;
        if self.size_mb(volume).is_none() {
            return Ok(None);
        }
        self.grow(volume, size_mb)?;
        // Its journal has no blocks of its own: each snapshot would have them too.
        let mount = self.open_image(volume)?.attach()?;
        if read(mount.as_fd(), OVER)?.is_some_and(|lies_over| lies_over == over) {
            let under = under(mount.as_fd())?;
            return Ok(Some(FoundLayer { mount, under }));
        }
        Err(VolumeError::LiesOver(volume.clone()))
    }

    /// Returns what a kept layer lies over, as its maker called it, even while it is used.
    pub fn over(&self, name: &VolumeName) -> Result<Option<String>, VolumeError> {
        let layer = self.look_into(name)?;
        Ok(read(layer.mount.as_fd(), OVER)?)
    }

    /// Begins a layer: an empty one, or one with the content of a disk and at least as large as
    /// that.
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
    /// Returns the mount to fill.
    pub(crate) fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// Gives the layer its name. It is on disk when this returns.
    pub(crate) fn finish(self, under: Option<&SnapshotName>) -> Result<OwnedFd, VolumeError> {
        let Self { volumes, name, over, image, mount, held } = self;
        write(mount.as_fd(), UNDER, under.map_or("", SnapshotName::as_str))?;
        write(mount.as_fd(), OVER, over)?;
        // After that, everything in the device is in the file on disk.
        syncfs(crate::file_system::top(mount.as_fd())?).map_err(io::Error::from)?;
        match volumes.keep(name, &image, held)? {
            true => Ok(mount),
            // Somebody else made it meanwhile and is using it.
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
