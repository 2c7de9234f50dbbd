//! Limits work that takes a thread for as long as others like: lookups of names, whose name servers
//! users choose, searches for their patterns, and counting the tokens of their calls.

use admission::Limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) struct Turns {
    all: Arc<Semaphore>,
    share: usize,
    /// One for each workspace that has turns or waits for one.
    shares: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl Turns {
    pub(crate) fn new(limits: Limits) -> Self {
        let [total, share] = [limits.total, limits.share].map(|limit| {
            usize::try_from(limit)
                .map_or(Semaphore::MAX_PERMITS, |limit| limit.min(Semaphore::MAX_PERMITS))
        });
        Self { all: Arc::new(Semaphore::new(total)), share, shares: Mutex::default() }
    }

    /// Waits for a turn, which ends when it is dropped. A request that waits for others of its own
    /// workspace takes none of its neighbours' turns.
    pub(crate) async fn turn(&self, owner: &str) -> Turn {
        let own = self.share(owner).acquire_owned().await;
        let one = Arc::clone(&self.all).acquire_owned().await;
        Turn { _own: own.ok(), _one: one.ok() }
    }

    /// Takes a turn if one is free.
    pub(crate) fn try_turn(&self, owner: &str) -> Option<Turn> {
        let own = self.share(owner).try_acquire_owned().ok()?;
        let one = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Turn { _own: Some(own), _one: Some(one) })
    }

    fn share(&self, owner: &str) -> Arc<Semaphore> {
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

/// A turn. The permits would be `None` only if somebody closed a semaphore, which nobody does.
pub(crate) struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _one: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn one_workspace_leaves_turns_to_the_others() {
        let turns = Turns::new(Limits { total: 4, share: 2 });
        let mut taken = Vec::new();
        while let Ok(turn) = timeout(Duration::from_secs(1), turns.turn("a")).await {
            taken.push(turn);
        }
        assert_eq!(taken.len(), 2);
        assert!(turns.try_turn("a").is_none() && turns.try_turn("b").is_some());
        assert!(timeout(Duration::from_secs(1), turns.turn("b")).await.is_ok());
        taken.pop();
        assert!(timeout(Duration::from_secs(1), turns.turn("a")).await.is_ok());
        drop(taken);
        drop(turns.turn("c").await);
        assert_eq!(turns.shares.lock().len(), 1, "those who wait for nothing are forgotten");
    }
}
