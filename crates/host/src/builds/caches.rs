//! Cache folders, which stay for the next RUN of a workspace that asks for them. Each is a file
//! system of limited size in a file, and only one instance has it at a time.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

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

impl Caches {
    pub(super) fn open(folder: &Path, per_workspace: usize) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), per_workspace, busy: Mutex::default() })
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
}
