//! What the control plane asks of a machine that keeps volumes. Which rows ask for them is decided
//! in [`crate::volumes`].

use crate::machine_fault::MachineFault;
use futures_util::future::BoxFuture;
use types::Timestamp;
use types::instance::{VolumeName, VolumeSource};

/// Which volume to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    pub name: VolumeName,
    /// The owning workspace. The machine's disk is divided between workspaces.
    pub workspace: String,
    pub size_mb: u32,
    /// The volume whose content it begins with.
    pub from: Option<VolumeSource>,
}

/// A volume that a machine keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVolume {
    pub name: VolumeName,
    pub size_mb: u32,
}

/// A copy of a volume at the object service, complete or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCopy {
    pub workspace: String,
    pub name: VolumeName,
}

pub trait VolumeStore: Send + Sync + 'static {
    /// Makes a volume, unless it exists. Once this returns, it survives a power cut. What it begins
    /// with is fetched from the object service, if it is there and not on this machine.
    fn make(&self, new: NewVolume) -> BoxFuture<'_, Result<(), VolumeFault>>;

    /// Makes a volume larger, even while an instance uses it.
    fn grow<'a>(
        &'a self,
        name: &'a VolumeName,
        size_mb: u32,
    ) -> BoxFuture<'a, Result<(), VolumeFault>>;

    /// Removes a volume for good. Does nothing if there is no such volume.
    fn remove<'a>(&'a self, name: &'a VolumeName) -> BoxFuture<'a, Result<(), MachineFault>>;

    fn list(&self) -> Vec<KeptVolume>;

    /// Returns the size of an existing volume in megabytes.
    fn size_mb(&self, name: &VolumeName) -> Option<u32>;

    /// Returns true if this machine has the image below a sandbox's disk. `false` if there is no
    /// such disk.
    fn has_image_below(&self, _disk: &VolumeName) -> bool {
        false
    }

    /// Puts a copy of a volume that never changes at the object service, and returns its digest.
    /// `None` if there is no such service, here and below.
    fn put_copy<'a>(
        &'a self,
        _workspace: &'a str,
        _name: &'a VolumeName,
    ) -> BoxFuture<'a, Result<Option<String>, VolumeFault>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Lists the copies that machines of this installation have put there.
    fn copies(&self) -> BoxFuture<'_, Result<Option<Vec<KeptCopy>>, VolumeFault>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Removes a copy, whoever put it there.
    fn remove_copy<'a>(&'a self, _copy: &'a KeptCopy) -> BoxFuture<'a, Result<(), VolumeFault>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Removes a volume that has a copy from this machine, unless another began with it since this
    /// time.
    fn release<'a>(
        &'a self,
        _name: &'a VolumeName,
        _since: Timestamp,
    ) -> BoxFuture<'a, Result<(), VolumeFault>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeFault {
    /// The workspace has used up its share of the disk and has to free some first.
    #[error("{0}")]
    OverShare(String),
    /// All workspaces together have used up the disk.
    #[error("{0}")]
    Full(String),
    /// The content that it begins with does not fit.
    #[error("what it is filled with needs {needs_mb} MB, and it has {size_mb}")]
    TooSmall { size_mb: u32, needs_mb: u32 },
    /// The content that it begins with no longer exists.
    #[error("what it is filled with is gone")]
    SourceGone,
    #[error("{0}")]
    Broken(String),
}
