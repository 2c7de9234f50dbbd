//! A disk that stays, as a source for cloning it into a snapshot.

use super::image::{Image, open_to_write};
use super::{Volumes, image};
use crate::error::VolumeError;
use crate::file_system::top;
use crate::sparse::BLOCK_BYTES;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fstat, ioctl_ficlone, syncfs};
use std::io;
use types::instance::VolumeName;

/// A disk to clone. As long as this lives, nobody else can start using the disk.
pub(crate) struct CloneSource {
    file: OwnedFd,
    usage: Usage,
}

enum Usage {
    /// An instance writes to it; this is an additional mount of it.
    Mounted(OwnedFd),
    /// Locked, and everything that was written is in the file.
    Idle(#[expect(dead_code, reason = "held for its lock")] Image),
}

impl Volumes {
    /// Prepares to clone a disk. `None` if it is in a place where files cannot be cloned.
    pub(crate) fn clone_source(
        &self,
        name: &VolumeName,
    ) -> Result<Option<CloneSource>, VolumeError> {
        if !self.is_cloned(name) {
            return Ok(None);
        }
        let path = self.path(name)?;
        let file = open_to_write(&path)?;
        if let Some(mount) = image::look_into(&path)? {
            return Ok(Some(CloneSource { file, usage: Usage::Mounted(mount) }));
        }
        let idle = Image::open(&path)?.ok_or_else(|| VolumeError::InUse(name.clone()))?;
        Ok(Some(CloneSource { file, usage: Usage::Idle(idle) }))
    }
}

impl CloneSource {
    /// Writes everything written so far to the file.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.usage {
            Usage::Mounted(mount) => Ok(syncfs(top(mount.as_fd())?)?),
            Usage::Idle(_) => Ok(()),
        }
    }

    /// Returns how much of the machine's disk it takes.
    pub(crate) fn allocated_bytes(&self) -> io::Result<u64> {
        allocated_bytes(&self.file)
    }

    /// Makes an empty file a clone of this one at this moment.
    ///
    /// Its content is like after a power cut right after [`Self::sync`]: the kernel may just be
    /// moving changes from the journal to their final places, and completes that when the clone is
    /// mounted.
    pub(crate) fn clone_into(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(ioctl_ficlone(file, &self.file)?)
    }
}

/// Returns how much of the machine's disk a file takes, including shared blocks.
pub(crate) fn allocated_bytes(file: impl AsFd) -> io::Result<u64> {
    Ok(fstat(file)?.st_blocks.unsigned_abs() * BLOCK_BYTES)
}
