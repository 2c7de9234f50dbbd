//! Locks of sandboxes: only one task works on each at a time.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use types::ids::ResourceId;

/// Sandboxes whose instance is started while their row is written: the row may say more than the
/// machine knows yet.
#[derive(Default)]
pub(super) struct Starting(Mutex<HashSet<ResourceId>>);

/// Marks a sandbox as starting until it is dropped.
pub(super) struct StartGuard<'b> {
    starting: &'b Starting,
    id: ResourceId,
}

impl Starting {
    pub(super) fn begin(&self, id: &ResourceId) -> StartGuard<'_> {
        self.0.lock().insert(id.clone());
        StartGuard { starting: self, id: id.clone() }
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
