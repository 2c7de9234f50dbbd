//! Which replicas are wanted: reported to the part that provides them, and again while requests
//! wait.
//!
//! There is one entry for each revision of a workload that wants a replica, however many requests
//! want one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use types::edge::Demand;
use types::ids::ResourceId;

/// Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Demands(Arc<Inner>);

#[derive(Default)]
struct Inner {
    open: Mutex<HashMap<Key, Open>>,
    changed: Notify,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    workload: ResourceId,
    revision: String,
}

#[derive(Default)]
struct Open {
    waiting: u32,
    /// Requests under way when the demand was last added.
    running: u32,
    /// Whether to report it as soon as somebody asks.
    is_due: bool,
    told: Option<Told>,
}

#[derive(Clone, Copy)]
struct Told {
    at: Instant,
    requests: u32,
}

/// A request that waits for a replica. The wait ends when this is dropped.
pub(crate) struct Waiting {
    demands: Demands,
    key: Key,
}

impl Waiting {
    pub(crate) fn is_for(&self, revision: &str) -> bool {
        self.key.revision == revision
    }
}

impl Demands {
    /// Says that every replica of the revision has all the requests it takes, `running` in all.
    pub(crate) fn add(&self, workload: &ResourceId, revision: &str, running: u32) {
        self.note(&Key { workload: workload.clone(), revision: revision.to_owned() }, 0, running);
    }

    /// Says that the revision has no replica, and that this request waits for one.
    pub(crate) fn wait(&self, workload: &ResourceId, revision: &str) -> Waiting {
        let key = Key { workload: workload.clone(), revision: revision.to_owned() };
        self.note(&key, 1, 0);
        Waiting { demands: self.clone(), key }
    }

    fn note(&self, key: &Key, waits: u32, running: u32) {
        let mut all = self.0.open.lock();
        let open = match all.get_mut(key) {
            Some(open) => open,
            None => all.entry(key.clone()).or_default(),
        };
        open.waiting += waits;
        open.running = running;
        // A demand that was just reported is reported again at once only if it has at least
        // doubled.
        let is_news = open.told.is_none_or(|told| open.requests() >= told.requests * 2);
        let becomes_due = is_news && !std::mem::replace(&mut open.is_due, true);
        drop(all);
        if becomes_due {
            self.0.changed.notify_one();
        }
    }

    /// Waits until something is wanted. Each demand is reported again after `repeat` while requests
    /// wait for it. Only one caller at a time may use this.
    pub(crate) async fn next(&self, repeat: Duration) -> Vec<Demand> {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let (wanted, look_again) = self.take(Instant::now(), repeat);
            if !wanted.is_empty() {
                return wanted;
            }
            match look_again {
                None => changed.await,
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = changed => {}
                },
            }
        }
    }

    /// Returns the demands that are due, or else when to look again.
    fn take(&self, now: Instant, repeat: Duration) -> (Vec<Demand>, Option<Instant>) {
        let (mut wanted, mut look_again) = (Vec::new(), None::<Instant>);
        self.0.open.lock().retain(|key, open| {
            let settled = open.told.is_none_or(|told| told.at + repeat <= now);
            if open.is_due || (settled && open.waiting > 0) {
                let requests = open.requests().max(1);
                open.is_due = false;
                open.told = Some(Told { at: now, requests });
                let Key { workload, revision } = key.clone();
                wanted.push(Demand { workload, revision, requests });
            } else if settled {
                return false;
            }
            let again = open.told.map(|told| told.at + repeat);
            look_again = look_again.into_iter().chain(again).min();
            true
        });
        (wanted, look_again)
    }

    /// Forgets a workload that is gone. Requests that still wait for it are about to get an error.
    pub(crate) fn forget(&self, workload: &ResourceId) {
        self.0.open.lock().retain(|key, _| key.workload != *workload);
    }
}

impl Open {
    fn requests(&self) -> u32 {
        self.waiting + self.running
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(open) = self.demands.0.open.lock().get_mut(&self.key) {
            open.waiting = open.waiting.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    const REPEAT: Duration = Duration::from_millis(200);

    fn id() -> ResourceId {
        ResourceId::known("res_1")
    }

    async fn next(demands: &Demands) -> Vec<(String, u32)> {
        let all = demands.next(REPEAT).await;
        all.into_iter().map(|demand| (demand.revision, demand.requests)).collect()
    }

    async fn says_nothing(demands: &Demands) -> bool {
        tokio::time::timeout(REPEAT * 10, demands.next(REPEAT)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_told_of_at_once_and_again_while_waiting() {
        let demands = Demands::default();
        let first = demands.wait(&id(), "a");
        assert_eq!(next(&demands).await, [("a".to_owned(), 1)]);
        let began = Instant::now();
        assert_eq!(next(&demands).await, [("a".to_owned(), 1)]);
        assert_eq!(began.elapsed(), REPEAT);
        drop(first);
        assert!(says_nothing(&demands).await);
        assert!(demands.0.open.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_few_demands() {
        let demands = Demands::default();
        let (mut told, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            waiting.push(demands.wait(&id(), "a"));
            told.extend(next(&demands).now_or_never().map(|said| said[0].1));
        }
        assert_eq!(told, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(next(&demands).await, [("a".to_owned(), 1000)]);
        assert_eq!(demands.0.open.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_that_are_full_are_told_of_with_what_they_have() {
        let demands = Demands::default();
        demands.add(&id(), "a", 20);
        demands.add(&id(), "a", 21);
        demands.add(&id(), "b", 1);
        let mut said = next(&demands).await;
        said.sort();
        assert_eq!(said, [("a".to_owned(), 21), ("b".to_owned(), 1)]);
        // Nobody waits: nothing is repeated or kept.
        assert!(says_nothing(&demands).await);
        assert!(demands.0.open.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_wanted_no_more() {
        let demands = Demands::default();
        let waiting = demands.wait(&id(), "a");
        demands.forget(&id());
        assert!(says_nothing(&demands).await);
        drop(waiting);
        assert!(demands.0.open.lock().is_empty());
    }
}
