//! Locks for work of which only one at a time may go on for the same thing.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// One lock for each key (such as the id of a build) that is being worked on.
pub struct Locks<K>(Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>);

impl<K> Default for Locks<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> Locks<K> {
    /// Waits for the lock of a key. It is held until the guard is dropped.
    pub async fn take(&self, key: &K) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(key.clone()).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;

    #[tokio::test]
    async fn one_key_is_worked_on_by_one_at_a_time() {
        let locks = Locks::default();
        let first = locks.take(&"one").await;
        let mut second = Box::pin(locks.take(&"one"));
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(Box::pin(locks.take(&"other"))).is_ready());
        drop(first);
        drop(second.await);
        drop(locks.take(&"other").await);
        assert_eq!(locks.0.lock().len(), 1, "those that nobody holds are forgotten");
    }
}
