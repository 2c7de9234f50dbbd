//! Who downloads which blob.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use crate::digest::Digest;

/// Locks that allow one download of each blob at a time, whichever images want it.
#[derive(Default)]
pub(crate) struct Downloads(Mutex<HashMap<Digest, Arc<tokio::sync::Mutex<()>>>>);

impl Downloads {
    pub(super) async fn turn(&self, blob: Digest) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.0.lock();
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(blob).or_default().clone()
        };
        lock.lock_owned().await
    }
}
