//! Allows only one job at a time for each build: what a cancelled try still removes must not be what
//! the next one has made.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use types::ids::BuildId;

#[derive(Default)]
pub(super) struct Alone(Mutex<HashMap<BuildId, Arc<AsyncMutex<()>>>>);

impl Alone {
    /// Waits until nobody works on the build. It belongs to the caller until the returned guard is
    /// dropped.
    pub(super) async fn wait(&self, build: &BuildId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut all = self.0.lock();
            all.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(all.entry(build.clone()).or_default())
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;

    #[tokio::test]
    async fn a_build_is_worked_on_by_one_at_a_time() {
        let (alone, one) = (Alone::default(), BuildId::known("bld_one"));
        let first = alone.wait(&one).await;
        let mut second = Box::pin(alone.wait(&one));
        assert!(poll!(&mut second).is_pending());
        assert!(poll!(Box::pin(alone.wait(&BuildId::known("bld_other")))).is_ready());
        drop(first);
        drop(second.await);
    }
}
