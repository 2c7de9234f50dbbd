//! Cache folders, which stay for the next RUN of a workspace that asks for them. Each is a file
//! system of limited size in a file, and only one instance has it at a time.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The unit in which the system counts what files take of a disk.
const BLOCK_BYTES: u64 = 512;

pub(super) struct Caches {
    folder: PathBuf,
    per_workspace: usize,
    busy: Mutex<HashMap<PathBuf, Arc<AsyncMutex<()>>>>,
}

/// A cache folder that belongs to the caller until this is dropped.
pub(super) struct Held {
    pub(super) file: PathBuf,
    _turn: OwnedMutexGuard<()>,
}

/// A cache folder as it is on disk.
pub(super) struct Folder {
    pub(super) workspace: String,
    pub(super) file: PathBuf,
    /// When something was last written to it.
    pub(super) used: SystemTime,
    /// What it takes of the disk.
    pub(super) bytes: u64,
}

impl Caches {
    pub(super) fn open(folder: &Path, per_workspace: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), per_workspace, busy: Mutex::default() })
    }

    /// Notes that builds may keep something for a workspace, so that it is found when the workspace
    /// is gone.
    pub(super) fn note(&self, workspace: &str) -> io::Result<()> {
        fs::create_dir_all(self.folder.join(workspace))
    }

    /// Lists the workspaces for which builds may have kept something.
    pub(super) fn workspaces(&self) -> io::Result<Vec<String>> {
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        fs::read_dir(&self.folder)?.map(|entry| entry.map(name)).collect()
    }

    /// Lists the folders of all workspaces.
    pub(super) fn all(&self) -> io::Result<Vec<Folder>> {
        let mut all = Vec::new();
        for workspace in self.workspaces()? {
            all.extend(self.of(&workspace)?);
        }
        Ok(all)
    }

    fn of(&self, workspace: &str) -> io::Result<Vec<Folder>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.folder.join(workspace))? {
            let entry = entry?;
            let about = entry.metadata()?;
            all.push(Folder {
                workspace: workspace.to_owned(),
                file: entry.path(),
                used: about.modified()?,
                bytes: about.blocks() * BLOCK_BYTES,
            });
        }
        Ok(all)
    }

    /// Removes a folder, unless a step uses it.
    pub(super) fn remove(&self, file: &Path) -> io::Result<()> {
        let mut busy = self.busy.lock();
        busy.retain(|_, turn| Arc::strong_count(turn) > 1);
        if busy.contains_key(file) { Ok(()) } else { files::remove(file) }
    }

    /// Removes the folders of a workspace, and the note of it unless a step uses one of them.
    pub(super) fn forget(&self, workspace: &str) -> io::Result<()> {
        for folder in self.of(workspace)? {
            self.remove(&folder.file)?;
        }
        match fs::remove_dir(self.folder.join(workspace)) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until a folder is free and takes it. The names of one step must be taken in sorted
    /// order, so that two steps never wait for each other.
    pub(super) async fn take(&self, workspace: &str, name: &str) -> io::Result<Held> {
        let folder = self.folder.join(workspace);
        fs::create_dir_all(&folder)?;
        let file = folder.join(file_name(name));
        let turn = {
            let mut busy = self.busy.lock();
            busy.retain(|_, turn| Arc::strong_count(turn) > 1);
            if !file.exists() {
                self.make_room(&folder, &busy)?;
            }
            Arc::clone(busy.entry(file.clone()).or_default())
        };
        let turn = turn.lock_owned().await;
        Ok(Held { file, _turn: turn })
    }

    /// Removes the least recently used folders, to make room for another.
    fn make_room(
        &self,
        folder: &Path,
        busy: &HashMap<PathBuf, Arc<AsyncMutex<()>>>,
    ) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let mut count = files.len();
        for (_, file) in files {
            if count < self.per_workspace {
                break;
            }
            if !busy.contains_key(&file) {
                fs::remove_file(file)?;
                count -= 1;
            }
        }
        Ok(())
    }
}

/// Returns a plain file name for a cache's name, which may be a path or anything else.
fn file_name(name: &str) -> String {
    types::hex::encode(&Sha256::digest(name.as_bytes())[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;

    #[tokio::test]
    async fn a_folder_is_for_one_step_at_a_time_and_old_ones_make_room() {
        let folder = tempfile::tempdir().unwrap();
        let caches = Caches::open(folder.path(), 2).unwrap();
        let one = caches.take("w", "/root/.cache").await.unwrap();
        assert!(poll!(Box::pin(caches.take("w", "/root/.cache"))).is_pending());
        let other = caches.take("other", "/root/.cache").await.unwrap();
        assert_ne!(one.file, other.file, "a neighbour has a folder of its own");
        fs::write(&one.file, "").unwrap();
        drop(one);
        for name in ["../a", "b"] {
            let held = caches.take("w", name).await.unwrap();
            fs::write(&held.file, "").unwrap();
        }
        assert_eq!(fs::read_dir(folder.path().join("w")).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn what_is_kept_for_a_workspace_is_found_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let caches = Caches::open(folder.path(), 2).unwrap();
        caches.note("noted").unwrap();
        let held = caches.take("w", "/root/.cache").await.unwrap();
        fs::write(&held.file, "kept").unwrap();
        let mut found = caches.workspaces().unwrap();
        found.sort();
        assert_eq!(found, ["noted", "w"]);
        caches.forget("noted").unwrap();
        caches.forget("w").unwrap();
        assert_eq!(caches.workspaces().unwrap(), ["w"], "a step uses its folder");
        assert_eq!(caches.all().unwrap().len(), 1);
        drop(held);
        caches.forget("w").unwrap();
        assert!(caches.workspaces().unwrap().is_empty());
    }
}
