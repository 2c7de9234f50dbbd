//! Uploads to the registry that are in progress: whose they are, who is writing to them, and the
//! disk space that they take.

use super::{broken, kib};
use admission::{Limits, Permit, Pool};
use bytes::Bytes;
use control::registry::{Place, RegistryFault};
use images::{Error, Store, Upload};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, mpsc};
use tokio::task::spawn_blocking;
use types::World;

const ID_CHARACTERS: usize = 32;
/// How much is collected for one write to disk, so that no thread waits for a slow sender.
const WRITTEN_AT_ONCE: usize = 1 << 20;
/// The size of the steps in which room on disk is taken.
const ROOM_STEP_KIB: u64 = 4096;

pub(super) struct Uploads {
    all: Mutex<HashMap<String, Arc<Entry>>>,
    open: Pool<String>,
}

struct Entry {
    place: String,
    touched_at: AtomicI64,
    state: Arc<AsyncMutex<State>>,
    _open: Permit<String>,
}

/// The state of an upload, held by one writer at a time.
struct State {
    /// `None` after a restart, until somebody continues it.
    upload: Option<Upload>,
    room: UploadRoom,
}

/// The disk space that an upload has taken.
struct UploadRoom {
    workspace: String,
    kib: u64,
    permits: Vec<Permit<String>>,
}

/// An upload, locked for the only caller who may continue it now.
pub(super) struct OpenUpload {
    state: OwnedMutexGuard<State>,
    entry: Arc<Entry>,
}

impl Uploads {
    /// Restores the uploads that earlier runs have left.
    pub(super) fn open(
        images: &Store,
        open: Limits,
        disk: &Pool<String>,
        world: &World,
    ) -> Result<Self, Error> {
        let uploads = Self { all: Mutex::default(), open: Pool::new("open uploads", open) };
        for left in images.left_uploads()? {
            let place = String::from_utf8_lossy(&left.about).into_owned();
            let Some(known) = Place::known(&place) else {
                images.forget_upload(&left.id)?;
                continue;
            };
            let workspace = known.workspace.to_string();
            let kib = kib(left.size);
            let permits = vec![disk.adopt(&workspace, kib)];
            let state = State {
                upload: None,
                room: UploadRoom { workspace: workspace.clone(), kib, permits },
            };
            let permit = uploads.open.adopt(&workspace, 1);
            uploads.add(left.id, place, state, permit, world);
        }
        Ok(uploads)
    }

    fn add(&self, id: String, place: String, state: State, open: Permit<String>, world: &World) {
        let entry = Entry {
            place,
            touched_at: AtomicI64::new(world.now().ms()),
            state: Arc::new(AsyncMutex::new(state)),
            _open: open,
        };
        self.all.lock().insert(id, Arc::new(entry));
    }

    pub(super) fn begin(
        &self,
        images: &Store,
        place: &Place,
        world: &World,
    ) -> Result<String, RegistryFault> {
        let workspace = place.workspace.to_string();
        let permit = self.open.take(&workspace, 1).map_err(RegistryFault::Crowded)?;
        let (id, place) = (world.random_text(ID_CHARACTERS), place.to_string());
        let upload = images.begin_upload(&id, place.as_bytes()).map_err(|error| broken(&error))?;
        let room = UploadRoom { workspace, kib: 0, permits: Vec::new() };
        self.add(id.clone(), place, State { upload: Some(upload), room }, permit, world);
        Ok(id)
    }

    /// Locks an upload of this repository. One of another repository counts as missing.
    pub(super) fn take(
        &self,
        images: &Store,
        place: &Place,
        id: &str,
    ) -> Result<OpenUpload, RegistryFault> {
        let entry = self.all.lock().get(id).cloned();
        let entry = entry.filter(|entry| entry.place == place.to_string());
        let entry = entry.ok_or(RegistryFault::NoUpload)?;
        let state = Arc::clone(&entry.state).try_lock_owned();
        let mut state = state.map_err(|_| RegistryFault::Busy)?;
        // The previous holder may have ended it.
        if !self.all.lock().contains_key(id) {
            return Err(RegistryFault::NoUpload);
        }
        if state.upload.is_none() {
            let resumed = images.resume_upload(id).map_err(|error| broken(&error))?;
            state.upload = Some(resumed);
        }
        Ok(OpenUpload { state, entry })
    }

    pub(super) fn forget(&self, id: &str) {
        self.all.lock().remove(id);
    }

    /// Returns the repositories that have uploads, each once.
    pub(super) fn places(&self) -> BTreeSet<String> {
        self.all.lock().values().map(|entry| entry.place.clone()).collect()
    }

    /// Removes uploads that nobody has continued since `before`.
    pub(super) fn give_up(&self, images: &Store, before: i64) -> Result<(), RegistryFault> {
        self.give_up_if(images, |entry| entry.touched_at.load(Ordering::Relaxed) < before)
    }

    /// Removes the uploads to a repository.
    pub(super) fn give_up_at(&self, images: &Store, place: &Place) -> Result<(), RegistryFault> {
        let place = place.to_string();
        self.give_up_if(images, |entry| entry.place == place)
    }

    fn give_up_if(
        &self,
        images: &Store,
        is_over: impl Fn(&Entry) -> bool,
    ) -> Result<(), RegistryFault> {
        let over: Vec<(String, Arc<Entry>)> = {
            let all = self.all.lock();
            all.iter()
                .filter(|(_, entry)| is_over(entry))
                .map(|(id, it)| (id.clone(), it.clone()))
                .collect()
        };
        for (id, entry) in over {
            // Somebody is writing to it, so it stays.
            let Ok(_state) = entry.state.try_lock() else { continue };
            images.forget_upload(&id).map_err(|error| broken(&error))?;
            self.forget(&id);
        }
        Ok(())
    }
}

impl OpenUpload {
    pub(super) fn size(&self) -> u64 {
        self.state.upload.as_ref().map_or(0, Upload::size)
    }

    /// Returns what was written, and the room it has taken until it is counted as stored content.
    pub(super) fn into_parts(mut self) -> (Option<Upload>, Vec<Permit<String>>) {
        let permits = std::mem::take(&mut self.state.room.permits);
        (self.state.upload.take(), permits)
    }

    fn append(&mut self, bytes: &[u8], max: u64, disk: &Pool<String>) -> Result<(), RegistryFault> {
        let State { upload, room } = &mut *self.state;
        let upload = upload.as_mut().ok_or(RegistryFault::NoUpload)?;
        let size = upload.size().saturating_add(bytes.len() as u64);
        if size > max {
            return Err(RegistryFault::TooLarge(max));
        }
        while room.kib < kib(size) {
            let more = disk.take(&room.workspace, ROOM_STEP_KIB);
            room.permits.push(more.map_err(RegistryFault::Full)?);
            room.kib += ROOM_STEP_KIB;
        }
        upload.append(bytes).map_err(|error| broken(&error))
    }
}

/// Appends what arrives. What has arrived stays even if the rest does not.
pub(super) async fn receive(
    mut open: OpenUpload,
    mut bytes: mpsc::Receiver<io::Result<Bytes>>,
    max: u64,
    disk: &Pool<String>,
    world: &World,
) -> Result<u64, RegistryFault> {
    let mut ended = false;
    while !ended {
        let mut batch = Vec::new();
        let mut cut = false;
        while batch.len() < WRITTEN_AT_ONCE && !ended {
            match bytes.recv().await {
                Some(Ok(piece)) => batch.extend_from_slice(&piece),
                Some(Err(_)) => (ended, cut) = (true, true),
                None => ended = true,
            }
        }
        let disk = disk.clone();
        let written = spawn_blocking(move || {
            let written = open.append(&batch, max, &disk);
            (open, written)
        });
        let written = written.await;
        let (back, written) =
            written.map_err(|_| RegistryFault::Broken("it was interrupted".to_owned()))?;
        open = back;
        open.entry.touched_at.store(world.now().ms(), Ordering::Relaxed);
        written?;
        if cut {
            return Err(RegistryFault::Cut);
        }
    }
    Ok(open.size())
}
