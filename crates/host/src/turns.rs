//! Limits how many builds, or snapshots, are worked on at once. Each first waits for a place of its
//! workspace's own, so that those of one workspace that wait never block the places of others.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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

    /// The same with a percentage as the share of one workspace.
    pub(crate) fn shared(all: usize, share_percent: u32) -> Self {
        let share = node::divided(all as u64, share_percent).share;
        Self::new(all, usize::try_from(share).unwrap_or(all))
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
            turns.acquire_owned().await.expect("turns are there as long as whoever takes them")
        };
        Turn { _own: take(own).await, _all: take(Arc::clone(&self.all)).await }
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
    async fn large_snapshots_of_one_workspace_leave_a_turn_to_others() {
        let turns = Turns::shared(4, 80);
        let mut large = Vec::new();
        for _ in 0..3 {
            large.push(turns.take("large").await);
        }
        assert!(poll!(Box::pin(turns.take("large"))).is_pending());
        assert!(poll!(Box::pin(turns.take("small"))).is_ready());
    }
}
