//! Descriptions of files and directories.

use super::access::refuse;
use super::draft;
use super::path::text;
use crate::http::Error;
use serde::Serialize;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use types::Timestamp;

/// Larger directories are refused rather than held in memory.
const ENTRIES_MAX: usize = 500_000;
const MODE_BITS: u32 = 0o7777;
/// The folder of the parts of uploads, which nobody asked for and which goes with the last of them.
pub(crate) const UPLOADS: &str = types::guest::UPLOADS_FOLDER;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) permissions: String,
    pub(crate) size: u64,
    pub(crate) last_modified: Timestamp,
    pub(crate) owner: String,
    pub(crate) group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Subdirectory {
    pub(crate) path: String,
    pub(crate) name: String,
}

#[derive(Serialize)]
pub(crate) struct Directory {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) files: Vec<File>,
    pub(crate) subdirectories: Vec<Subdirectory>,
    /// Present only in a recursive listing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recursive: Option<bool>,
}

impl Directory {
    pub(crate) fn new(path: &Path) -> Self {
        let name = path.file_name().map(text).unwrap_or_else(|| "/".into());
        Self {
            path: text(path),
            name,
            files: Vec::new(),
            subdirectories: Vec::new(),
            recursive: None,
        }
    }
}

impl File {
    pub(crate) fn new(path: &Path, name: String, metadata: &Metadata, names: &Names) -> Self {
        Self {
            path: text(path),
            name,
            permissions: permissions(metadata),
            size: metadata.len(),
            last_modified: modified(metadata),
            owner: names.user(metadata.uid()),
            group: names.group(metadata.gid()),
            content: None,
        }
    }
}

/// Formats the mode bits of a file as octal digits. For anything else, such as a link, the number
/// includes the kind.
fn permissions(metadata: &Metadata) -> String {
    let shown = if metadata.is_file() { metadata.mode() & MODE_BITS } else { metadata.mode() };
    format!("{shown:o}")
}

pub(crate) fn modified(metadata: &Metadata) -> Timestamp {
    Timestamp::from_ms(
        metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000),
    )
}

/// Lists a directory, one level deep. Links count as files and are not followed.
pub(crate) fn list(path: &Path, names: &Names) -> Result<Directory, Error> {
    let mut directory = Directory::new(path);
    for (name, kind) in entries(path).map_err(|error| refuse(path, &error))? {
        let full = path.join(&name);
        if kind.is_dir() {
            directory.subdirectories.push(Subdirectory { path: text(&full), name: text(&name) });
        } else if let Ok(metadata) = full.symlink_metadata() {
            directory.files.push(File::new(&full, text(&name), &metadata, names));
        }
    }
    Ok(directory)
}

/// Lists the names in a directory, sorted, without drafts that are still being written and without
/// parts of uploads.
pub(crate) fn entries(path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
    let mut found = Vec::new();
    for entry in path.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        if draft::is_draft(&name) || name == UPLOADS {
            continue;
        }
        if found.len() == ENTRIES_MAX {
            return Err(io::Error::other(format!(
                "the directory has more than {ENTRIES_MAX} entries"
            )));
        }
        if let Ok(kind) = entry.file_type() {
            found.push((name, kind));
        }
    }
    found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Names of users and groups from the image's files. An id without a name is shown as a number.
pub(crate) struct Names {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Names {
    pub(crate) fn read() -> Self {
        Self { users: named("/etc/passwd"), groups: named("/etc/group") }
    }

    fn user(&self, id: u32) -> String {
        self.users.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    fn group(&self, id: u32) -> String {
        self.groups.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// Reads names from a file in which each line begins with `name:password:number`.
fn named(path: &str) -> HashMap<u32, String> {
    const BYTES_MAX: u64 = 1 << 20;
    let mut content = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // Without names, the numbers are shown.
        let _ = io::Read::read_to_end(&mut io::Read::take(file, BYTES_MAX), &mut content);
    }
    let line = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    String::from_utf8_lossy(&content).lines().filter_map(line).collect()
}
