//! Keeps uploaded sources, one file for each build, until they are forgotten.

use bytes::Bytes;
use control::machine::BuildFault;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use types::ids::BuildId;

const PART: &str = "part";

#[derive(Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Opens the folder, and removes uploads that were incomplete when the program ended.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == PART) {
                fs::remove_file(path)?;
            }
        }
        Ok(Self(folder.to_owned()))
    }

    pub(super) fn path(&self, build: &BuildId) -> PathBuf {
        self.0.join(build.as_str())
    }

    /// Stores an upload. It gets its name once all of it is on disk.
    pub(super) async fn take(
        &self,
        build: &BuildId,
        bytes: mpsc::Receiver<io::Result<Bytes>>,
        bytes_max: u64,
    ) -> Result<u64, BuildFault> {
        let path = self.path(build);
        let taken = tokio::task::spawn_blocking(move || {
            let part = path.with_extension(PART);
            let taken = write(&part, bytes, bytes_max).and_then(|size| {
                files::rename(&part, &path).map_err(|error| broken(&error))?;
                Ok(size)
            });
            if taken.is_err() {
                // If this fails, the next start removes it.
                let _ = fs::remove_file(&part);
            }
            taken
        });
        taken.await.unwrap_or_else(|error| Err(broken(&io::Error::other(error))))
    }

    pub(super) fn forget(&self, build: &BuildId) -> io::Result<()> {
        files::remove(&self.path(build))
    }
}

fn write(
    path: &Path,
    mut bytes: mpsc::Receiver<io::Result<Bytes>>,
    bytes_max: u64,
) -> Result<u64, BuildFault> {
    let mut file = File::create(path).map_err(|error| broken(&error))?;
    let mut size = 0u64;
    while let Some(piece) = bytes.blocking_recv() {
        let piece =
            piece.map_err(|error| BuildFault::Sources(format!("the upload was cut: {error}")))?;
        size = size.saturating_add(piece.len() as u64);
        if size > bytes_max {
            return Err(BuildFault::Sources(format!(
                "the archive has more than {bytes_max} bytes"
            )));
        }
        file.write_all(&piece).map_err(|error| broken(&error))?;
    }
    file.sync_all().map_err(|error| broken(&error))?;
    Ok(size)
}

fn broken(error: &io::Error) -> BuildFault {
    BuildFault::Broken(format!("the sources cannot be kept: {error}"))
}
