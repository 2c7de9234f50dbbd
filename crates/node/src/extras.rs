//! What only some instances have: files of the machine mounted inside, no network, and handing over
//! what they wrote.

use std::fmt;
use std::path::PathBuf;
use types::instance::{DriveMount, VolumeName};

/// More than any build asks for.
const MOUNTS_MAX: usize = 64;

#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Whether [`crate::Node::written`] returns what the instance writes.
    pub hands_over: bool,
    /// Whether it has no network beyond itself.
    pub is_offline: bool,
    pub mounts: Vec<Mount>,
}

/// Something of the machine that is mounted in an instance.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The mount point, an absolute path without `..` and the like. Made if it is missing.
    pub path: String,
    pub what: Mounted,
}

#[derive(Clone)]
pub enum Mounted {
    /// A file or folder of the machine, read-only, with its owners mapped into the instance.
    Bind(PathBuf),
    /// A file that exists only in memory.
    File { content: Vec<u8>, mode: u32, owner: (u32, u32) },
    /// A folder that outlives the instance: a file system in this file, made if it is missing. Only
    /// one instance may have it at a time.
    Kept { file: PathBuf, size_mb: u32, mode: u32, owner: (u32, u32), read_only: bool },
    /// An existing volume, with its owners mapped into the instance.
    Volume { volume: VolumeName, read_only: bool },
    /// A part of a drive. It is left out if it is not available.
    Drive(DriveMount),
}

/// The content is left out, because it may be secret.
impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(path) => f.debug_tuple("Bind").field(path).finish(),
            Self::File { .. } => f.debug_struct("File").finish_non_exhaustive(),
            Self::Kept { file, .. } => f.debug_tuple("Kept").field(file).finish(),
            Self::Volume { volume, .. } => f.debug_tuple("Volume").field(volume).finish(),
            Self::Drive(mount) => f.debug_tuple("Drive").field(mount).finish(),
        }
    }
}

impl Extras {
    pub(crate) fn is_none(&self) -> bool {
        !self.hands_over && !self.is_offline && self.mounts.is_empty()
    }

    pub(crate) fn volumes(&self) -> impl Iterator<Item = &VolumeName> {
        self.mounts.iter().filter_map(|mount| match &mount.what {
            Mounted::Volume { volume, .. } => Some(volume),
            _ => None,
        })
    }

    pub(crate) fn fits(&self, has_place: impl Fn(&str) -> bool) -> bool {
        self.mounts.len() <= MOUNTS_MAX && self.mounts.iter().all(|mount| has_place(&mount.path))
    }
}

impl Mount {
    /// Whether the instance starts without this mount if it cannot be made, because others may have
    /// removed the source.
    pub(crate) fn may_be_missing(&self) -> bool {
        matches!(self.what, Mounted::Drive(_))
    }
}
