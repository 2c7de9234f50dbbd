//! A snapshot store that only pretends to keep snapshots, and that a test can block.

use control::machine::MachineFault;
use control::snapshot_store::{
    Base, KeptSnapshot, NewSnapshot, SnapshotFault, SnapshotStore, TakenSnapshot,
};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use types::ids::ResourceId;

pub const SIZE_BYTES: u64 = 1 << 30;

#[derive(Clone)]
pub struct PretendedSnapshots {
    room: Arc<AtomicUsize>,
    kept: Arc<Mutex<BTreeMap<String, ResourceId>>>,
    /// Every snapshot that was requested.
    pub taken: watch::Sender<Vec<NewSnapshot>>,
    gate: watch::Sender<bool>,
    service: Arc<Mutex<Service>>,
    /// The state of the base images.
    base: Arc<Mutex<Base>>,
    /// Why the files allow no snapshot.
    refused: Arc<Mutex<Option<String>>>,
}

/// An object service, if there is one.
#[derive(Default)]
struct Service {
    /// Whether it answers.
    answers: Option<bool>,
    keeps: BTreeSet<String>,
}

impl PretendedSnapshots {
    /// Creates one with room for `room` snapshots.
    pub fn new(room: usize) -> Self {
        Self {
            room: Arc::new(AtomicUsize::new(room)),
            kept: Arc::default(),
            taken: watch::Sender::default(),
            gate: watch::Sender::new(true),
            service: Arc::default(),
            base: Arc::new(Mutex::new(Base::Kept)),
            refused: Arc::default(),
        }
    }

    pub fn ids(&self) -> Vec<ResourceId> {
        self.kept.lock().values().cloned().collect()
    }

    /// From now on archives go to a service, which answers or does not.
    pub fn serve(&self, answers: bool) {
        self.service.lock().answers = Some(answers);
    }

    fn ask(&self) -> Result<(), SnapshotFault> {
        match self.service.lock().answers {
            Some(false) => Err(SnapshotFault::Broken("the service is away".to_owned())),
            _ => Ok(()),
        }
    }

    /// Leaves a snapshot without a row, as a killed server would.
    pub fn leave(&self, id: &ResourceId) {
        self.kept.lock().insert(id.to_string(), id.clone());
    }

    /// Sets the room for snapshots from now on.
    pub fn allow(&self, room: usize) {
        self.room.store(room, Ordering::SeqCst);
    }

    /// Loses the base images of all snapshots.
    pub fn lose_images(&self) {
        *self.base.lock() = Base::Lost;
    }

    /// Loses the files of all snapshots.
    pub fn lose_files(&self) {
        *self.base.lock() = Base::Gone;
    }

    /// Finds from now on that the files allow no snapshot.
    pub fn refuse(&self, why: &str) {
        *self.refused.lock() = Some(why.to_owned());
    }

    /// Makes snapshots that are requested from now on wait.
    pub fn close(&self) {
        self.gate.send_replace(false);
    }

    pub fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Waits until `count` snapshots were requested in all.
    pub async fn until_taken(&self, count: usize) {
        let mut taken = self.taken.subscribe();
        let all = taken.wait_for(|taken| taken.len() >= count);
        let all = tokio::time::timeout(Duration::from_secs(60), all).await;
        drop(all.expect("in time").expect("a machine"));
    }

    /// Waits until `count` snapshots are kept.
    pub async fn until_kept(&self, count: usize) {
        let kept = async {
            while self.kept.lock().len() != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let kept = tokio::time::timeout(Duration::from_secs(60), kept).await;
        assert!(kept.is_ok(), "{:?} are kept, not {count}", self.ids());
    }
}

impl SnapshotStore for PretendedSnapshots {
    fn take(&self, new: NewSnapshot) -> BoxFuture<'_, Result<TakenSnapshot, SnapshotFault>> {
        Box::pin(async move {
            let id = new.id.clone();
            self.taken.send_modify(|taken| taken.push(new));
            let mut gate = self.gate.subscribe();
            gate.wait_for(|open| *open).await.map_err(|_| SnapshotFault::Gone)?;
            if let Some(why) = self.refused.lock().clone() {
                return Err(SnapshotFault::Unfit(why));
            }
            let room = self.room.load(Ordering::SeqCst);
            if self.kept.lock().len() >= room {
                return Err(SnapshotFault::OverShare(format!("at most {room} snapshots")));
            }
            self.leave(&id);
            Ok(TakenSnapshot { size_bytes: SIZE_BYTES, paused: Duration::from_millis(3) })
        })
    }

    fn offload<'a>(
        &'a self,
        _: &'a str,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), SnapshotFault>> {
        Box::pin(async move {
            self.ask()?;
            let mut service = self.service.lock();
            if service.answers.is_some() {
                service.keeps.insert(id.to_string());
            }
            Ok(())
        })
    }

    fn is_here(&self, id: &ResourceId) -> bool {
        !self.service.lock().keeps.contains(id.as_str())
    }

    fn fetch<'a>(
        &'a self,
        _: &'a str,
        id: &'a ResourceId,
    ) -> BoxFuture<'a, Result<(), SnapshotFault>> {
        Box::pin(async move {
            self.ask()?;
            self.service.lock().keeps.remove(id.as_str());
            Ok(())
        })
    }

    fn remove<'a>(&'a self, id: &'a ResourceId) -> BoxFuture<'a, Result<(), MachineFault>> {
        self.kept.lock().remove(id.as_str());
        Box::pin(async { Ok(()) })
    }

    fn base(&self, _: &ResourceId) -> Base {
        *self.base.lock()
    }

    fn list(&self) -> Vec<KeptSnapshot> {
        let kept = |id| KeptSnapshot { id, size_bytes: SIZE_BYTES };
        self.ids().into_iter().map(kept).collect()
    }
}
