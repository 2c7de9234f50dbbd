//! What is noted of a snapshot beside its files.

use super::SnapshotName;
use files::Readers;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

const ABOUT: &str = "about";
const REMOVED: &str = "removed";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    /// What it lies over.
    pub(super) parent: Option<SnapshotName>,
    pub(super) size_bytes: u64,
}

impl About {
    /// `None`: the snapshot is not whole, or on its way out.
    pub(super) fn read(folder: &Path) -> io::Result<Option<Self>> {
        let is_named = folder
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| SnapshotName::new(name).is_ok());
        if !is_named {
            return Ok(None);
        }
        match std::fs::read(folder.join(ABOUT)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        files::write_new(&folder.join(ABOUT), Readers::Owner, &serde_json::to_vec(self)?)
    }

    pub(super) fn is_removed(folder: &Path) -> bool {
        folder.join(REMOVED).exists()
    }

    pub(super) fn mark_removed(folder: &Path) -> io::Result<()> {
        files::replace(&folder.join(REMOVED), Readers::Owner, b"")
    }
}
