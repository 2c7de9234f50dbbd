//! A disk that stays, as a snapshot of its instance clones it.

use super::image::{Image, open_to_write};
use super::{Volumes, image};
use crate::error::VolumeError;
use crate::file_system::top;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{fstat, ioctl_ficlone, syncfs};
use std::io;
use types::instance::VolumeName;

/// For as long as it lives, nobody else begins to use the disk.
pub(crate) struct CloneSource {
    file: OwnedFd,
    usage: Usage,
}

enum Usage {
    /// An instance writes to it; this is one more mount of it.
    Mounted(OwnedFd),
    /// Locked, and all that was written is in the file.
    Idle(#[expect(dead_code, reason = "held for its lock")] Image),
}

impl Volumes {
    /// `None`: it is where nothing can be cloned.
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
    /// Has all that was written until now in the file.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.usage {
            Usage::Mounted(mount) => Ok(syncfs(top(mount.as_fd())?)?),
            Usage::Idle(_) => Ok(()),
        }
    }

    /// What it has of the machine's disk.
    pub(crate) fn allocated_bytes(&self) -> io::Result<u64> {
        allocated_bytes(&self.file)
    }

    /// Makes an empty file the same as this one is at this moment.
    ///
    /// What is in it is as after a power cut right after [`Self::sync`]: the kernel may be moving
    /// what is in the journal to its places meanwhile, and goes on with that when the clone is
    /// mounted.
    pub(crate) fn clone_into(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(ioctl_ficlone(file, &self.file)?)
    }
}

/// What a file has of the machine's disk, with what it shares.
pub(crate) fn allocated_bytes(file: impl AsFd) -> io::Result<u64> {
    Ok(fstat(file)?.st_blocks.unsigned_abs() * super::BLOCK_BYTES)
}
