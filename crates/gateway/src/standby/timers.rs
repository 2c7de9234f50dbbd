//! The times at which instances are to be checked: one queue and one task for all of them.

use super::instance::Instance;
use parking_lot::Mutex;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

#[derive(Default)]
pub(crate) struct Timers {
    entries: Mutex<BinaryHeap<Reverse<Entry>>>,
    /// Notified when a new entry is due before all others.
    earlier: Notify,
}

struct Entry {
    at: Instant,
    instance: Arc<Instance>,
}

impl Timers {
    pub(crate) fn add(&self, at: Instant, instance: Arc<Instance>) {
        let mut entries = self.entries.lock();
        let first = entries.peek().is_none_or(|Reverse(first)| at < first.at);
        entries.push(Reverse(Entry { at, instance }));
        drop(entries);
        if first {
            self.earlier.notify_one();
        }
    }

    /// Waits for the next instance that is due.
    pub(crate) async fn next(&self) -> Arc<Instance> {
        loop {
            let at = match self.take(Instant::now()) {
                Ok(instance) => return instance,
                Err(at) => at,
            };
            let earlier = self.earlier.notified();
            match at {
                None => earlier.await,
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = earlier => {}
                },
            }
        }
    }

    fn take(&self, now: Instant) -> Result<Arc<Instance>, Option<Instant>> {
        let mut entries = self.entries.lock();
        match entries.peek() {
            Some(Reverse(first)) if first.at > now => Err(Some(first.at)),
            _ => entries.pop().map(|Reverse(entry)| entry.instance).ok_or(None),
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}
