//! One at a time for each sandbox.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use types::ids::ResourceId;

/// Who works on which sandbox.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<ResourceId, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// Waits until nobody else works on the sandbox. The turn ends when the guard is dropped.
    pub(super) async fn take(&self, id: &ResourceId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(id.clone()).or_default())
        };
        lock.lock_owned().await
    }
}
