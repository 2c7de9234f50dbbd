//! Writable layers that stay: what an instance wrote over its image is there again in the next
//! instance over the same image.

use super::{NewVolume, Volumes};
use crate::error::VolumeError;
use crate::spec::Owner;
use crate::sys;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use types::instance::VolumeName;

/// Beside the folders of the layer, where no instance sees it: what the layer lies over. Written
/// last, so that a layer without it is only half made.
const OVER: &str = "over";
const OVER_BYTES_MAX: u64 = 4_096;

/// A layer as an instance asks for it.
pub(crate) struct KeptLayer<'s> {
    pub(crate) volume: &'s VolumeName,
    pub(crate) owner: &'s Owner,
    pub(crate) size_mb: u32,
    pub(crate) over: &'s str,
}

impl Volumes {
    /// The layer that there is, unless it lies over something else; then an empty one, which
    /// `fill` begins. Its files have the owners that `users` gives them.
    pub(crate) fn layer(
        &self,
        wanted: &KeptLayer<'_>,
        fill: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
        users: BorrowedFd<'_>,
    ) -> Result<OwnedFd, VolumeError> {
        let mut mount = self.mount_layer(wanted)?;
        let lies_over = read(mount.as_fd())?;
        if lies_over.as_deref().is_none_or(|over| over != wanted.over) {
            drop(mount);
            self.remove(wanted.volume)?;
            mount = self.mount_layer(wanted)?;
            fill(mount.as_fd())?;
            write(mount.as_fd(), wanted.over)?;
        }
        sys::share_owners(mount.as_fd(), users).map_err(io::Error::from)?;
        Ok(mount)
    }

    fn mount_layer(&self, wanted: &KeptLayer<'_>) -> Result<OwnedFd, VolumeError> {
        let KeptLayer { volume, owner, size_mb, .. } = *wanted;
        self.make(&NewVolume { name: volume.clone(), owner: owner.clone(), size_mb, from: None })?;
        self.grow(volume, size_mb)?;
        self.attach(volume)
    }
}

fn read(layer: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match openat(layer, OVER, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut text = String::new();
    File::from(file).take(OVER_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn write(layer: BorrowedFd<'_>, over: &str) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = File::from(openat(layer, OVER, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(over.as_bytes())?;
    file.sync_all()
}
