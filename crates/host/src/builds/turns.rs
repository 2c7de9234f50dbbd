//! Limits how many builds run at once. A build first waits for a place of its workspace's own, so
//! that waiting builds of one workspace never block the places of others.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use types::ids::BuildId;

pub(crate) struct Turns {
    all: Arc<Semaphore>,
    share: usize,
    own: Mutex<HashMap<String, Arc<Semaphore>>>,
}

pub(crate) struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn new(all: usize, share: usize) -> Self {
        let (all, share) = (all.max(1), share.clamp(1, all.max(1)));
        Self { all: Arc::new(Semaphore::new(all)), share, own: Mutex::default() }
    }

    pub(crate) async fn take(&self, workspace: &str) -> Turn {
        let own = {
            let mut own = self.own.lock();
            own.retain(|_, turns| Arc::strong_count(turns) > 1);
            let fresh = || Arc::new(Semaphore::new(self.share));
            Arc::clone(own.entry(workspace.to_owned()).or_insert_with(fresh))
        };
        #[expect(clippy::expect_used, reason = "neither is ever closed")]
        let take = async |turns: Arc<Semaphore>| {
            turns.acquire_owned().await.expect("turns are there as long as the builder")
        };
        Turn { _own: take(own).await, _all: take(Arc::clone(&self.all)).await }
    }
}

/// Allows only one job at a time for each build: what a cancelled try still removes must not be
/// what the next one has made.
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
    async fn the_builds_of_one_workspace_leave_a_place_for_another() {
        let turns = Turns::new(2, 1);
        let first = turns.take("greedy").await;
        let mut second = Box::pin(turns.take("greedy"));
        assert!(poll!(&mut second).is_pending());
        let neighbour = turns.take("neighbour").await;
        let mut third = Box::pin(turns.take("third"));
        assert!(poll!(&mut third).is_pending());
        drop(neighbour);
        third.await;
        drop(first);
        second.await;
    }

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
