//! Counts the disk space of images that workspaces pull. Each workspace has its share of the total;
//! images added by the command line are the operator's and count for nobody.
//!
//! An image counts for the first workspace that had it pulled, until it is removed from the store.
//! That is recorded on disk, because images outlive this program. The size of an image is known
//! only once it is pulled: meanwhile a workspace holds as much as the image may take, and its pulls
//! take turns, so that many at once do not take more than one after the other.

use admission::{Limits, Locks, Permit, Pool, Refused};
use files::Readers;
use images::Digest;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};
use tokio::sync::OwnedMutexGuard;

const MIB: u64 = 1 << 20;

pub(crate) struct Pulled {
    folder: PathBuf,
    image_mb_max: u64,
    pool: Pool<String>,
    kept: Mutex<HashMap<Note, Permit<String>>>,
    /// Allows one pull at a time for each workspace.
    locks: Locks<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Note {
    workspace: String,
    image: Digest,
}

/// Room for one image that is being pulled.
pub(crate) struct PullRoom {
    pub(crate) bytes: u64,
    /// Less than one image may have, because other images of the workspace have the rest.
    pub(crate) is_rest: bool,
    _permit: Permit<String>,
    _lock: OwnedMutexGuard<()>,
}

impl Pulled {
    /// Counts what earlier runs of this program have recorded.
    pub(crate) fn open(folder: &Path, disk_mb: Limits, image_mb_max: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let pool = Pool::new("MB of pulled images", disk_mb);
        let (kept, locks) = (Mutex::default(), Locks::default());
        let pulled = Self { folder: folder.to_owned(), image_mb_max, pool, kept, locks };
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let note = path.file_name().and_then(|name| Note::of_file(name.to_str()?));
            match note.zip(fs::read_to_string(&path)?.trim().parse::<u64>().ok()) {
                Some((note, mb)) => pulled.count(note, mb),
                None => fs::remove_file(&path)?,
            }
        }
        Ok(pulled)
    }

    /// Notes how much room there is by now.
    pub(crate) fn raise(&self, disk_mb: Limits) {
        self.pool.raise(disk_mb);
    }

    /// Waits for other pulls of this workspace, then takes as much room as one image may have.
    pub(crate) async fn begin(&self, workspace: &str) -> Result<PullRoom, Refused> {
        let owner = workspace.to_owned();
        let lock = self.locks.take(&owner).await;
        let Limits { total, share } = self.pool.limits();
        let left = share
            .saturating_sub(self.pool.held_by(&owner))
            .min(total.saturating_sub(self.pool.held()));
        // If nothing is left, asking for a little shows whose limit is reached.
        let mb = left.min(self.image_mb_max).max(1);
        let permit = self.pool.take(&owner, mb)?;
        Ok(PullRoom {
            bytes: mb * MIB,
            is_rest: mb < self.image_mb_max,
            _permit: permit,
            _lock: lock,
        })
    }

    /// Records the size of an image that was pulled into this room.
    pub(crate) fn keep(
        &self,
        room: PullRoom,
        workspace: &str,
        image: Digest,
        bytes: u64,
    ) -> io::Result<()> {
        let note = Note { workspace: workspace.to_owned(), image };
        let mb = bytes.div_ceil(MIB);
        drop(room);
        if self.kept.lock().keys().any(|kept| kept.image == image) {
            return Ok(());
        }
        // On disk before it counts: the image survives a power cut, and so must the record of its
        // owner.
        files::replace(&self.folder.join(note.file()), Readers::Owner, mb.to_string().as_bytes())?;
        self.count(note, mb);
        Ok(())
    }

    fn count(&self, note: Note, mb: u64) {
        let permit = self.pool.adopt(&note.workspace, mb);
        self.kept.lock().insert(note, permit);
    }

    /// Gives back the room of images that no longer exist.
    pub(crate) fn keep_only(&self, is_here: impl Fn(&Digest) -> bool) {
        let gone: Vec<Note> =
            self.kept.lock().keys().filter(|note| !is_here(&note.image)).cloned().collect();
        for note in gone {
            if let Err(error) = fs::remove_file(self.folder.join(note.file())) {
                tracing::warn!(%error, image = %note.image, "the note of a pulled image could not be removed");
            }
            self.kept.lock().remove(&note);
        }
    }
}

impl Note {
    /// Returns the name of its file. Ids of workspaces have no dots.
    fn file(&self) -> String {
        format!("{}.{}", self.workspace, self.image.to_string().replace(':', "-"))
    }

    fn of_file(name: &str) -> Option<Self> {
        let (workspace, digest) = name.split_once('.')?;
        Some(Self {
            workspace: workspace.to_owned(),
            image: digest.replacen('-', ":", 1).parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{LocalRegistry, RegistrySettings};
    use control::registry::Registry as _;
    use images::Store;
    use std::sync::Arc;
    use types::{Timestamp, World};

    fn digest(number: u8) -> Digest {
        format!("sha256:{}", format!("{number:02x}").repeat(32)).parse().unwrap()
    }

    fn open(folder: &Path) -> Pulled {
        Pulled::open(folder, Limits { total: 100, share: 60 }, 50).unwrap()
    }

    #[tokio::test]
    async fn one_workspace_leaves_room_for_another() {
        let folder = tempfile::tempdir().unwrap();
        let pulled = open(folder.path());
        let room = pulled.begin("greedy").await.unwrap();
        assert_eq!(room.bytes, 50 * MIB, "no image is larger");
        pulled.keep(room, "greedy", digest(1), 45 * MIB).unwrap();
        let room = pulled.begin("greedy").await.unwrap();
        assert_eq!(room.bytes, 15 * MIB, "what is left of the share");
        assert_eq!(pulled.begin("neighbour").await.unwrap().bytes, 40 * MIB);
        pulled.keep(room, "greedy", digest(2), 15 * MIB).unwrap();
        let refused = pulled.begin("greedy").await.map(|room| room.bytes);
        assert!(matches!(refused, Err(Refused::Share { limit: 60, .. })), "{refused:?}");
        // Another run of the program knows it too.
        drop(pulled);
        let pulled = open(folder.path());
        assert!(pulled.begin("greedy").await.is_err());
        pulled.keep_only(|image| *image == digest(2));
        assert_eq!(pulled.begin("greedy").await.unwrap().bytes, 45 * MIB);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn pulls_of_one_workspace_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let pulled = open(folder.path());
        let room = pulled.begin("one").await.unwrap();
        let mut next = Box::pin(pulled.begin("one"));
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(room);
        assert_eq!(next.await.unwrap().bytes, 50 * MIB);
    }

    #[tokio::test]
    async fn an_image_that_is_deleted_gives_back_what_it_unpacked_to() {
        let folder = tempfile::tempdir().unwrap();
        let images = Store::open(&folder.path().join("images"), images::Settings::default());
        let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(1));
        let settings = RegistrySettings::default();
        let registry = LocalRegistry::open(images.unwrap(), settings, world).unwrap();
        let limits = Limits { total: 100, share: 60 };
        let pulled = Pulled::open(&folder.path().join("pulled"), limits, 60).unwrap();
        let pulled = Arc::new(pulled);
        registry.frees(&pulled);
        let room = pulled.begin("one").await.unwrap();
        let bytes = room.bytes;
        pulled.keep(room, "one", Digest::of(b"deleted"), bytes).unwrap();
        assert!(pulled.begin("one").await.is_err());
        registry.free_soon().await.unwrap();
        assert_eq!(pulled.begin("one").await.unwrap().bytes, bytes);
    }

    #[test]
    fn what_is_no_note_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("half"), "").unwrap();
        fs::write(
            folder.path().join(format!("wsp_a.{}", digest(3).to_string().replace(':', "-"))),
            "",
        )
        .unwrap();
        open(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
