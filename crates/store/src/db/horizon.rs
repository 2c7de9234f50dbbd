//! How far the change feed is complete on PostgreSQL while transactions of others are running.
//!
//! Transaction numbers belong to the whole cluster. So one transaction that stays open in another
//! database of it would hold back the feed for as long as it likes, and with it all that follows
//! the feed: revoked keys would stay good on other servers. Only transactions of this database can
//! add changes, and those of our own role show their numbers. Once such a list has shown that none
//! below a number is left, every snapshot taken later has all changes below it.

use std::sync::atomic::{AtomicI64, Ordering};

#[derive(Default)]
pub(crate) struct Horizon {
    reached: AtomicI64,
    /// Where the cluster's own horizon was when it was last looked at.
    last: AtomicI64,
}

impl Horizon {
    /// Returns a horizon for all snapshots that are taken from now on.
    pub(super) fn reached(&self) -> i64 {
        self.reached.load(Ordering::SeqCst)
    }

    pub(super) fn reach(&self, horizon: i64) {
        self.reached.fetch_max(horizon, Ordering::SeqCst);
    }

    /// Returns true if the cluster's horizon has not moved since the last look.
    pub(super) fn stands_at(&self, horizon: i64) -> bool {
        self.last.swap(horizon, Ordering::Relaxed) == horizon
    }
}
