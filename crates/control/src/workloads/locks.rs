//! Locks of sandboxes: only one task works on each at a time.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use types::ids::ResourceId;

/// Sandboxes whose instance is started while their row is written: the row may say more than the
/// machine knows yet.
#[derive(Default)]
pub(super) struct Starting(Mutex<HashSet<ResourceId>>);

/// Marks a sandbox as starting until it is dropped.
pub(crate) struct StartGuard<'b> {
    starting: &'b Starting,
    id: ResourceId,
}

impl Starting {
    pub(super) fn begin(&self, id: &ResourceId) -> StartGuard<'_> {
        self.0.lock().insert(id.clone());
        StartGuard { starting: self, id: id.clone() }
    }

    /// Unless somebody else has begun.
    pub(super) fn begin_alone(&self, id: &ResourceId) -> Option<StartGuard<'_>> {
        let is_first = self.0.lock().insert(id.clone());
        is_first.then(|| StartGuard { starting: self, id: id.clone() })
    }

    pub(super) fn has(&self, id: &ResourceId) -> bool {
        self.0.lock().contains(id)
    }
}

impl Drop for StartGuard<'_> {
    fn drop(&mut self) {
        self.starting.0.lock().remove(&self.id);
    }
}

/// One lock for each sandbox that is being worked on.
#[derive(Default)]
pub(super) struct Locks(Mutex<HashMap<ResourceId, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    /// Waits for the lock of a sandbox. It is held until the guard is dropped.
    pub(super) async fn take(&self, id: &ResourceId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(id.clone()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Whoever tells the edge of rows holds it from their reading on, so that an older route never
/// follows a newer one: several tasks tell of the same row.
#[derive(Default)]
pub(super) struct Telling {
    all: RwLock<()>,
    rows: Locks,
}

/// Nobody else tells of a row until it is dropped.
pub(super) struct TellGuard<'t> {
    _all: RwLockReadGuard<'t, ()>,
    _row: OwnedMutexGuard<()>,
}

impl Telling {
    /// Waits until nobody else tells of a row.
    pub(super) async fn one(&self, id: &ResourceId) -> TellGuard<'_> {
        TellGuard { _all: self.all.read().await, _row: self.rows.take(id).await }
    }

    /// Waits until nobody else tells of any row.
    pub(super) async fn all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }
}

/// Forks of one sandbox as it is that come together share a snapshot: the first that is begun after
/// they came.
#[derive(Default)]
pub(crate) struct LiveForks {
    /// Counts forks that come and snapshots that begin.
    order: AtomicU64,
    last: Mutex<HashMap<ResourceId, Arc<tokio::sync::Mutex<Option<Begun>>>>>,
}

/// The last snapshot of a sandbox that a fork took.
struct Begun {
    at: u64,
    snapshot: ResourceId,
}

impl LiveForks {
    /// The snapshot of a sandbox that was begun after this was called, by `take` or by another fork.
    pub(crate) async fn share<E>(
        &self,
        sandbox: &ResourceId,
        take: impl Future<Output = Result<ResourceId, E>>,
    ) -> Result<ResourceId, E> {
        let came = self.order.fetch_add(1, Ordering::SeqCst);
        let last = {
            let mut last = self.last.lock();
            last.retain(|_, last| Arc::strong_count(last) > 1);
            Arc::clone(last.entry(sandbox.clone()).or_default())
        };
        let mut last = last.lock().await;
        if let Some(begun) = last.as_ref().filter(|begun| begun.at > came) {
            return Ok(begun.snapshot.clone());
        }
        let at = self.order.fetch_add(1, Ordering::SeqCst);
        let snapshot = take.await?;
        *last = Some(Begun { at, snapshot: snapshot.clone() });
        Ok(snapshot)
    }
}
