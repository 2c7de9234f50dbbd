//! What is stored about a snapshot beside its files.

use crate::names::SnapshotName;
use files::Readers;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use types::instance::VolumeName;

const ABOUT: &str = "about";
const REMOVED: &str = "removed";
const DISKS: &str = "disks";

/// How the files of a snapshot are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sort {
    /// Copied one by one. Earlier releases knew only this.
    #[default]
    Layer,
    /// Together with the file system that they were in, which is cloned.
    Image,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    #[serde(default)]
    pub(super) sort: Sort,
    /// The snapshot that it lies over.
    pub(super) parent: Option<SnapshotName>,
    pub(super) size_bytes: u64,
    /// The caller's name for the image layers below.
    #[serde(default)]
    pub(super) base: Option<String>,
}

impl About {
    /// Reads it. `None` if the snapshot is half made or about to be removed.
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

    /// Returns the disks that stay and were started from it.
    pub(super) fn disks(folder: &Path) -> io::Result<HashSet<VolumeName>> {
        let folder = folder.join(DISKS);
        if !folder.exists() {
            return Ok(HashSet::new());
        }
        let mut disks = HashSet::new();
        for entry in std::fs::read_dir(folder)? {
            let name = entry?.file_name().into_string().ok();
            disks.extend(name.and_then(|name| VolumeName::new(name).ok()));
        }
        Ok(disks)
    }

    /// Records one more disk, before anything is on it.
    pub(super) fn add_disk(folder: &Path, disk: &VolumeName) -> io::Result<()> {
        let file = folder.join(DISKS).join(disk.as_str());
        DirBuilder::new().recursive(true).mode(0o700).create(folder.join(DISKS))?;
        files::write_new(&file, Readers::Owner, b"")?;
        files::sync_folder_of(&file)?;
        files::sync_folder_of(&folder.join(DISKS))
    }

    pub(super) fn mark_removed(folder: &Path) -> io::Result<()> {
        files::replace(&folder.join(REMOVED), Readers::Owner, b"")
    }
}
