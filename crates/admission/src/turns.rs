//! Limits how much heavy work (builds, snapshots, copies) goes on at once. Whoever wants to work
//! waits: first for a turn of its owner's own, so that those of one owner that wait never block the
//! turns of others.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct Turns {
    all: Arc<Semaphore>,
    share: usize,
    own: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Dropping it lets the next one work.
#[must_use = "a turn that is dropped is given to the next"]
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Turns {
    /// Makes `all` turns, of which one owner has `share` at a time. There is always one at least.
    pub fn new(all: usize, share: usize) -> Self {
        let (all, share) = (all.max(1), share.clamp(1, all.max(1)));
        Self { all: Arc::new(Semaphore::new(all)), share, own: Mutex::default() }
    }

    pub async fn take(&self, owner: &str) -> Turn {
        let own = {
            let mut own = self.own.lock();
            own.retain(|_, turns| Arc::strong_count(turns) > 1);
            let fresh = || Arc::new(Semaphore::new(self.share));
            Arc::clone(own.entry(owner.to_owned()).or_insert_with(fresh))
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
    async fn the_work_of_one_owner_leaves_a_turn_for_another() {
        let turns = Turns::new(2, 1);
        let first = turns.take("greedy").await;
        let mut second = Box::pin(turns.take("greedy"));
        assert!(poll!(&mut second).is_pending());
        let neighbour = turns.take("neighbour").await;
        let mut third = Box::pin(turns.take("third"));
        assert!(poll!(&mut third).is_pending());
        drop(neighbour);
        drop(third.await);
        drop(first);
        drop(second.await);
    }
}
