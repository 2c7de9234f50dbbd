//! Locks on sandboxes and other resources, so that only one task works on each at a time.

use admission::Locks;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use types::ids::ResourceId;

/// What some task is working on at present.
#[derive(Default)]
pub(crate) struct InProgress(Mutex<HashSet<ResourceId>>);

/// Marks one as worked on until it is dropped.
pub(crate) struct InProgressGuard<'b> {
    marked: &'b InProgress,
    id: ResourceId,
}

impl InProgress {
    pub(super) fn begin(&self, id: &ResourceId) -> InProgressGuard<'_> {
        self.0.lock().insert(id.clone());
        InProgressGuard { marked: self, id: id.clone() }
    }

    /// Marks it as [`InProgress::begin`] does, unless it is marked already.
    pub(crate) fn begin_alone(&self, id: &ResourceId) -> Option<InProgressGuard<'_>> {
        let is_first = self.0.lock().insert(id.clone());
        // Not `then_some`: it would make and drop a second guard, which ends the turn of the other
        // task.
        is_first.then(|| InProgressGuard { marked: self, id: id.clone() })
    }

    pub(super) fn has(&self, id: &ResourceId) -> bool {
        self.0.lock().contains(id)
    }
}

impl Drop for InProgressGuard<'_> {
    fn drop(&mut self) {
        self.marked.0.lock().remove(&self.id);
    }
}

/// The locks of tasks that publish routes. Several tasks publish routes of the same row; each holds
/// its lock from reading the row on, so that an older route never follows a newer one.
#[derive(Default)]
pub(super) struct Telling {
    all: RwLock<()>,
    rows: Locks<ResourceId>,
}

/// While this is held, nobody else publishes a route of the row.
pub(super) struct TellGuard<'t> {
    _all: RwLockReadGuard<'t, ()>,
    _row: OwnedMutexGuard<()>,
}

impl Telling {
    /// Waits until nobody else publishes a route of the row.
    pub(super) async fn one(&self, id: &ResourceId) -> TellGuard<'_> {
        TellGuard { _all: self.all.read().await, _row: self.rows.take(id).await }
    }

    /// Waits until nobody else publishes any route.
    pub(super) async fn all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }
}

/// Lets simultaneous forks of a running sandbox share a snapshot: the first one begun after they
/// arrived.
#[derive(Default)]
pub(crate) struct LiveForks {
    /// Numbers the arrivals of forks and the beginnings of snapshots.
    order: AtomicU64,
    last: Mutex<HashMap<ResourceId, Arc<tokio::sync::Mutex<Option<Begun>>>>>,
}

/// The last snapshot of a sandbox that a fork took.
struct Begun {
    at: u64,
    snapshot: ResourceId,
}

impl LiveForks {
    /// Returns a snapshot begun after this call, by `take` or by another fork.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_works_on_the_same() {
        let busy = InProgress::default();
        let (id, other) = (ResourceId::known("res_1"), ResourceId::known("res_2"));
        let first = busy.begin_alone(&id);
        assert!(first.is_some() && busy.begin_alone(&other).is_some());
        for _ in 0..2 {
            assert!(busy.begin_alone(&id).is_none(), "the first is not done");
        }
        drop(first);
        assert!(busy.begin_alone(&id).is_some());
    }
}
