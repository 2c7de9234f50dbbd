//! What the management side asks of a machine that keeps volumes. Which rows ask for them is decided
//! in [`crate::volumes`].

use crate::machine::{MachineFault, Wait};
use types::instance::VolumeName;

/// What to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume {
    pub name: VolumeName,
    /// Whose it is: the machine's disk is divided between workspaces.
    pub workspace: String,
    pub size_mb: u32,
    /// What it is filled with at first.
    pub from: Option<VolumeName>,
}

/// One that a machine keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVolume {
    pub name: VolumeName,
    pub size_mb: u32,
}

pub trait VolumeStore: Send + Sync + 'static {
    /// Makes one, unless it is there. It survives the machine's power when this answers.
    fn make(&self, new: NewVolume) -> Wait<'_, Result<(), VolumeFault>>;

    /// Makes one larger, also while an instance uses it.
    fn grow<'a>(&'a self, name: &'a VolumeName, size_mb: u32) -> Wait<'a, Result<(), VolumeFault>>;

    /// Removes one for good. Without one there is nothing to do.
    fn remove<'a>(&'a self, name: &'a VolumeName) -> Wait<'a, Result<(), MachineFault>>;

    fn list(&self) -> Vec<KeptVolume>;

    /// Megabytes of one that there is.
    fn size_mb(&self, name: &VolumeName) -> Option<u32>;
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeFault {
    /// The workspace has to give something back first.
    #[error("{0}")]
    OverShare(String),
    /// All workspaces together have taken what there is.
    #[error("{0}")]
    Full(String),
    /// What it is filled with at first does not fit.
    #[error("what it is filled with needs {needs_mb} MB, and it has {size_mb}")]
    TooSmall { size_mb: u32, needs_mb: u32 },
    /// What it is filled with at first is not there any more.
    #[error("what it is filled with is gone")]
    SourceGone,
    #[error("{0}")]
    Broken(String),
}
