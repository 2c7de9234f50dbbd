//! Limits how much work goes on at once that is heavy (builds, snapshots, copies) or takes a thread
//! for as long as others like (lookups of names, searches for patterns of users). Whoever wants to
//! work waits: first for a turn of its owner's own, so that those of one owner that wait never block
//! the turns of others.

use crate::Limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub struct Turns {
    all: Arc<Semaphore>,
    share: usize,
    /// The shares of owners that have turns or wait for one.
    shares: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Dropping it lets the next one work.
#[must_use = "a turn that is dropped is given to the next"]
pub struct Turn {
    _of_share: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    /// Makes `all` turns, of which one owner has `share` at a time. There is always one at least.
    pub fn new(all: usize, share: usize) -> Self {
        let all = all.clamp(1, Semaphore::MAX_PERMITS);
        let share = share.clamp(1, all);
        Self { all: Arc::new(Semaphore::new(all)), share, shares: Mutex::default() }
    }

    pub async fn take(&self, owner: &str) -> Turn {
        let of_share = taken(self.share_of(owner)).await;
        Turn { _of_share: Some(of_share), _of_all: taken(Arc::clone(&self.all)).await }
    }

    /// Takes a turn if one is free.
    pub fn try_take(&self, owner: &str) -> Option<Turn> {
        let of_share = self.share_of(owner).try_acquire_owned().ok()?;
        let of_all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Turn { _of_share: Some(of_share), _of_all: of_all })
    }

    /// Takes a turn that counts for no owner.
    pub async fn take_unowned(&self) -> Turn {
        Turn { _of_share: None, _of_all: taken(Arc::clone(&self.all)).await }
    }

    fn share_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(owner).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.share));
        shares.insert(owner.to_owned(), Arc::downgrade(&share));
        share
    }
}

impl From<Limits> for Turns {
    fn from(limits: Limits) -> Self {
        let [all, share] = [limits.total, limits.share]
            .map(|limit| usize::try_from(limit).unwrap_or(Semaphore::MAX_PERMITS));
        Self::new(all, share)
    }
}

#[expect(clippy::expect_used, reason = "no semaphore here is ever closed")]
async fn taken(turns: Arc<Semaphore>) -> OwnedSemaphorePermit {
    turns.acquire_owned().await.expect("turns are there as long as whoever takes them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
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

    #[test]
    fn whoever_waits_for_its_share_takes_nothing_from_others() {
        let turns = Turns::from(Limits { total: 4, share: 2 });
        let now = |owner| turns.take(owner).now_or_never();
        let first = now("busy").unwrap();
        let second = now("busy").unwrap();
        let mut waiting = Box::pin(turns.take("busy"));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(turns.try_take("busy").is_none());
        let _others = turns.try_take("other").unwrap();
        let _unowned = turns.take_unowned().now_or_never().unwrap();
        assert!(turns.take_unowned().now_or_never().is_none(), "there are four in all");
        assert!(now("other").is_none() && turns.try_take("other").is_none());
        drop(first);
        assert!(waiting.now_or_never().is_some());
        drop(second);
        drop(now("third").unwrap());
        assert_eq!(turns.shares.lock().len(), 2, "those who wait for nothing are forgotten");
    }
}
