//! Cache of build steps: maps a key made of everything that a step depends on to the layer it gave.
//!
//! ```text
//! builds/<workspace>/<key>   the layer of one step
//! ```
//!
//! A workspace finds only its own steps: it can neither learn what a neighbour has built nor get
//! it. A layer is kept as long as a step names it; the least recently used steps are removed first,
//! here beyond what one workspace may have, and by whoever runs builds beyond what all may have.

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::{Held, Lease};
use crate::manifest::{self, Descriptor};
use crate::store::{Parts, Store};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) const FOLDER: &str = "builds";
/// Most steps that are kept for one workspace, however small their layers are.
const STEPS_MAX: usize = 5_000;

/// The result of a step: a layer, or none if the step changed no files.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cached {
    pub(super) layer: Option<CachedLayer>,
    pub(super) created: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CachedLayer {
    pub(crate) packed: Descriptor,
    pub(crate) unpacked: Digest,
    pub(crate) bytes: u64,
}

pub(super) struct Cache<'a> {
    pub(super) parts: &'a Parts,
    pub(super) workspace: &'a str,
    pub(super) bytes_max: u64,
}

impl Cache<'_> {
    fn folder(&self) -> PathBuf {
        self.parts.folder.join(FOLDER).join(self.workspace)
    }

    /// Looks up the layer of a step. From here on the lease keeps it.
    pub(super) fn find(&self, key: &Digest, lease: &Lease) -> Result<Option<Cached>, Error> {
        let path = self.folder().join(key.hex());
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let found: Cached = manifest::read("cached step", &bytes)?;
        if let Some(layer) = &found.layer {
            lease.hold(Held::Blob(layer.packed.digest));
            lease.hold(Held::Layer(layer.unpacked));
            let whole = self.parts.blobs.size(&layer.packed.digest).is_some()
                && self.parts.layers.bytes(&layer.unpacked)?.is_some();
            if !whole {
                return Ok(None);
            }
        }
        // The modification time records the last use, which decides what is removed first.
        if let Ok(file) = fs::File::options().write(true).open(&path) {
            let now = rustix::fs::Timestamps { last_access: NOW, last_modification: NOW };
            let _ = rustix::fs::futimens(&file, &now);
        }
        Ok(Some(found))
    }

    pub(super) fn keep(&self, key: &Digest, cached: &Cached) -> Result<(), Error> {
        let folder = self.folder();
        disk::make_folder(&folder)?;
        let bytes = manifest::write("cached step", cached)?;
        // Not flushed: if a power cut loses it, the step is only done again.
        let scratch = self.parts.scratch();
        fs::write(&scratch, bytes).map_err(Error::io("write", &scratch))?;
        let path = folder.join(key.hex());
        fs::rename(&scratch, &path).map_err(Error::io("rename", &scratch))?;
        self.make_room(&folder)
    }

    fn make_room(&self, folder: &Path) -> Result<(), Error> {
        let mut steps = kept(self.workspace, folder)?;
        steps.sort_by_key(|step| step.used);
        let mut bytes: u64 = steps.iter().map(|step| step.bytes).sum();
        let mut count = steps.len();
        for step in steps {
            if bytes <= self.bytes_max && count <= STEPS_MAX {
                break;
            }
            disk::remove_file(&step.path)?;
            bytes -= step.bytes;
            count -= 1;
        }
        Ok(())
    }
}

/// A finished step that is kept for later builds of its workspace.
#[derive(Debug, Clone)]
pub struct KeptStep {
    pub workspace: String,
    /// When a build last used it.
    pub used: SystemTime,
    /// The size of its layer, packed and unpacked. Other steps may have the same layer.
    pub bytes: u64,
    path: PathBuf,
}

impl Store {
    /// Lists the steps that are kept for all workspaces.
    pub fn kept_steps(&self) -> Result<Vec<KeptStep>, Error> {
        let mut all = Vec::new();
        for folder in self.0.cached_workspaces()? {
            let workspace = folder.file_name().unwrap_or_default().to_string_lossy();
            all.extend(kept(&workspace, &folder)?);
        }
        Ok(all)
    }

    /// Forgets a step. Its layer goes with the next collection if nothing else needs it.
    pub fn forget_step(&self, step: &KeptStep) -> Result<(), Error> {
        disk::remove_file(&step.path)
    }

    /// Forgets all steps of a workspace. Returns whether there was any.
    pub fn forget_steps(&self, workspace: &str) -> Result<bool, Error> {
        let folder = self.0.folder.join(FOLDER).join(workspace);
        let found = is_plain(workspace) && folder.exists();
        if found {
            disk::remove_tree(&folder)?;
        }
        Ok(found)
    }
}

/// Returns whether a workspace's name can be that of a folder.
pub(super) fn is_plain(workspace: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !workspace.is_empty() && workspace.bytes().all(plain)
}

fn kept(workspace: &str, folder: &Path) -> Result<Vec<KeptStep>, Error> {
    let mut steps = Vec::new();
    for (path, cached) in entries(folder)? {
        let used = fs::metadata(&path).and_then(|about| about.modified());
        let bytes = cached.layer.map_or(0, |layer| layer.bytes + layer.packed.size);
        let workspace = workspace.to_owned();
        steps.extend(used.ok().map(|used| KeptStep { workspace, used, bytes, path }));
    }
    Ok(steps)
}

const NOW: rustix::fs::Timespec =
    rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW as _ };

fn entries(folder: &Path) -> Result<Vec<(PathBuf, Cached)>, Error> {
    let mut all = Vec::new();
    let keys = match disk::digests_in(folder) {
        // The workspace was forgotten meanwhile.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Vec::new()
        }
        keys => keys?,
    };
    for key in keys {
        let path = folder.join(key.hex());
        match fs::read(&path) {
            Ok(bytes) => match manifest::read("cached step", &bytes) {
                Ok(cached) => all.push((path, cached)),
                // Cut short by a power failure.
                Err(_) => disk::remove_file(&path)?,
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("read", &path)(error)),
        }
    }
    Ok(all)
}

impl Parts {
    /// Returns the layers of all cached steps, for the collection.
    pub(crate) fn cached_layers(&self) -> Result<Vec<CachedLayer>, Error> {
        let mut all = Vec::new();
        for folder in self.cached_workspaces()? {
            all.extend(entries(&folder)?.into_iter().filter_map(|(_, cached)| cached.layer));
        }
        Ok(all)
    }

    /// Returns the folders of all workspaces that have cached steps.
    fn cached_workspaces(&self) -> Result<Vec<PathBuf>, Error> {
        let folder = self.folder.join(FOLDER);
        let workspaces = match fs::read_dir(&folder) {
            Ok(workspaces) => workspaces,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("list", &folder)(error)),
        };
        let path = |entry: std::io::Result<fs::DirEntry>| entry.map(|entry| entry.path());
        workspaces.map(path).collect::<Result<_, _>>().map_err(Error::io("list", &folder))
    }
}
