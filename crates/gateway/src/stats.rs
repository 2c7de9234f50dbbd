//! How many requests a workload has had, how many failed, and how long they took.
//!
//! In memory for whoever asks about one workload. What is published for everybody counts by kind
//! alone: names are of tenants, and there may be any number of them.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use types::KindName;
use types::edge::{RequestStats, Requests};

/// The upper bound of the first bucket.
const FIRST: Duration = Duration::from_micros(100);
/// Two buckets for each doubling, up to beyond the longest exchange of a deployment.
const BUCKETS: usize = 48;

pub(crate) struct Stats {
    counts: Mutex<Counts>,
    requests: metrics::Counter,
    errors: metrics::Counter,
    seconds: metrics::Histogram,
}

#[derive(Default)]
struct Counts {
    all: Count,
    /// No more than the route has targets.
    revisions: BTreeMap<String, Count>,
}

struct Count {
    count: u64,
    errors: u64,
    buckets: [u64; BUCKETS],
}

impl Stats {
    pub(crate) fn new(kind: KindName) -> Self {
        let kind = kind.name();
        Self {
            counts: Mutex::default(),
            requests: metrics::counter!("holm_gateway_requests_total", "kind" => kind),
            errors: metrics::counter!("holm_gateway_request_errors_total", "kind" => kind),
            seconds: metrics::histogram!("holm_gateway_request_seconds", "kind" => kind),
        }
    }

    /// `revision` is the one that was chosen, if it came to that.
    pub(crate) fn record(&self, revision: Option<&str>, took: Duration, is_error: bool) {
        self.requests.increment(1);
        self.errors.increment(u64::from(is_error));
        self.seconds.record(took.as_secs_f64());
        let mut counts = self.counts.lock();
        counts.all.record(took, is_error);
        if let Some(count) = revision.and_then(|revision| counts.revisions.get_mut(revision)) {
            count.record(took, is_error);
        }
    }

    /// Forgets all other revisions.
    pub(crate) fn keep<'r>(&self, revisions: impl Iterator<Item = &'r str>) {
        let mut counts = self.counts.lock();
        let mut before = std::mem::take(&mut counts.revisions);
        counts.revisions = revisions
            .map(|name| (name.to_owned(), before.remove(name).unwrap_or_default()))
            .collect();
    }

    pub(crate) fn read(&self) -> RequestStats {
        let counts = self.counts.lock();
        let revisions = counts.revisions.iter().map(|(name, count)| (name.clone(), count.read()));
        RequestStats { all: counts.all.read(), revisions: revisions.collect() }
    }
}

impl Count {
    fn record(&mut self, took: Duration, is_error: bool) {
        self.count += 1;
        self.errors += u64::from(is_error);
        self.buckets[bucket(took)] += 1;
    }

    fn read(&self) -> Requests {
        let Self { count, errors, .. } = *self;
        let [p50, p90, p99] = [50, 90, 99].map(|percent| self.percentile(percent));
        Requests { count, errors, p50, p90, p99 }
    }

    /// The bound that so many of 100 requests did not exceed.
    fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reached = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        if self.count == 0 { Duration::ZERO } else { reached.map_or(Duration::MAX, bound) }
    }
}

impl Default for Count {
    fn default() -> Self {
        Self { count: 0, errors: 0, buckets: [0; BUCKETS] }
    }
}

/// The last bucket takes all that is longer.
fn bucket(took: Duration) -> usize {
    (0..BUCKETS - 1).find(|index| took <= bound(*index)).unwrap_or(BUCKETS - 1)
}

/// The upper bound of a bucket: 100 us, 150 us, 200 us, 300 us, 400 us, …
fn bound(index: usize) -> Duration {
    let octave = FIRST * (1 << (index / 2));
    if index.is_multiple_of(2) { octave } else { octave * 3 / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let stats = Stats::new(KindName::Agent);
        stats.keep(["a"].into_iter());
        assert_eq!(stats.read().all, Requests::default());
        for number in 1..=100 {
            stats.record(Some("a"), MS(number), number > 98);
        }
        stats.record(Some("gone"), MS(1), true);
        let read = stats.read();
        assert_eq!((read.all.count, read.all.errors), (101, 3));
        let of = read.revisions["a"];
        assert_eq!((of.count, of.errors, read.revisions.len()), (100, 2, 1));
        assert!(of.p50 >= MS(50) && of.p50 <= MS(75), "{:?}", of.p50);
        assert!(of.p90 >= MS(90) && of.p99 >= MS(99) && of.p99 <= MS(149), "{of:?}");
        stats.keep(["b"].into_iter());
        assert_eq!(stats.read().revisions.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(stats.read().all.count, 101);
    }

    proptest! {
        #[test]
        fn a_time_is_in_the_bucket_that_ends_behind_it(us in 0u64..5_000_000_000) {
            let took = Duration::from_micros(us);
            let index = bucket(took);
            prop_assert!(index == BUCKETS - 1 || took <= bound(index));
            prop_assert!(index == 0 || took > bound(index - 1));
        }
    }
}
