//! Counts how many requests a workload has had, how many failed, and how long they took.
//!
//! The counts of a single workload are kept in memory for those who ask about it. Published metrics
//! count by kind alone: names belong to tenants, and there may be any number of them.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::edge::{RequestStats, Requests, Window};
use types::time::MINUTE_MS;
use types::{KindName, Timestamp};

/// Buckets for each doubling: a time that is read is an eighth too long at most.
const STEPS: usize = 8;
/// The first bucket ends after this many steps.
const STEP: Duration = Duration::from_micros(16);
/// To beyond the longest exchange of a deployment.
const BUCKETS: usize = 24 * STEPS;

pub(crate) struct Stats {
    counts: Mutex<Counts>,
    requests: metrics::Counter,
    errors: metrics::Counter,
    seconds: metrics::Histogram,
}

#[derive(Default)]
struct Counts {
    all: Count,
    /// At most as many as the route has targets.
    revisions: BTreeMap<String, Count>,
    /// The minutes in which there were requests, oldest first.
    minutes: VecDeque<Minute>,
}

struct Minute {
    /// Minutes since the epoch.
    number: i64,
    all: Count,
    revisions: BTreeMap<String, Count>,
}

/// A request that was answered.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) at: Timestamp,
    pub(crate) took: Duration,
    pub(crate) is_error: bool,
}

#[derive(Clone)]
struct Count {
    count: u64,
    errors: u64,
    buckets: [u32; BUCKETS],
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

    /// Counts a request. `revision` is the one that was chosen, if it came to that. Minutes are
    /// kept for as long as `kept`.
    pub(crate) fn record(&self, revision: Option<&str>, answered: Answered, kept: Duration) {
        self.requests.increment(1);
        self.errors.increment(u64::from(answered.is_error));
        self.seconds.record(answered.took.as_secs_f64());
        let mut counts = self.counts.lock();
        counts.all.record(answered);
        let known = revision.filter(|revision| counts.revisions.contains_key(*revision));
        let of = known.and_then(|revision| counts.revisions.get_mut(revision));
        if let Some(count) = of {
            count.record(answered);
        }
        let minute = counts.minute(answered.at.ms().div_euclid(MINUTE_MS), kept);
        minute.all.record(answered);
        if let Some(revision) = known {
            minute.revisions.entry(revision.to_owned()).or_default().record(answered);
        }
    }

    /// Forgets all other revisions.
    pub(crate) fn keep<'r>(&self, revisions: impl Iterator<Item = &'r str>) {
        let mut counts = self.counts.lock();
        let counts = &mut *counts;
        let mut before = std::mem::take(&mut counts.revisions);
        counts.revisions = revisions
            .map(|name| (name.to_owned(), before.remove(name).unwrap_or_default()))
            .collect();
        for minute in &mut counts.minutes {
            minute.revisions.retain(|name, _| counts.revisions.contains_key(name));
        }
    }

    /// Returns the counts for the window, or since the start. The number of replicas is left to the
    /// caller, who has the route.
    pub(crate) fn read(&self, window: Option<Window>) -> RequestStats {
        let counts = self.counts.lock();
        let Some(window) = window else {
            let revisions = counts.revisions.iter();
            let revisions = revisions.map(|(name, count)| (name.clone(), count.read()));
            return RequestStats {
                all: counts.all.read(),
                revisions: revisions.collect(),
                ..RequestStats::default()
            };
        };
        let mut all = Count::default();
        let mut revisions: BTreeMap<&String, Count> =
            counts.revisions.keys().map(|name| (name, Count::default())).collect();
        for minute in counts.minutes.iter().filter(|minute| minute.is_in(window)) {
            all.add(&minute.all);
            for (name, count) in &minute.revisions {
                if let Some(sum) = revisions.get_mut(name) {
                    sum.add(count);
                }
            }
        }
        let revisions = revisions.into_iter().map(|(name, count)| (name.clone(), count.read()));
        let revisions = revisions.collect();
        RequestStats { all: all.read(), revisions, ..RequestStats::default() }
    }
}

impl Counts {
    /// Returns the minute of this number, or the newest one if the clock went back. Drops minutes
    /// older than `kept`.
    fn minute(&mut self, number: i64, kept: Duration) -> &mut Minute {
        let newest = self.minutes.back().map_or(i64::MIN, |minute| minute.number);
        if newest < number {
            let kept = i64::try_from(kept.as_secs() / 60).unwrap_or(i64::MAX);
            let oldest = number.saturating_sub(kept);
            while self.minutes.front().is_some_and(|minute| minute.number <= oldest) {
                self.minutes.pop_front();
            }
            let (all, revisions) = (Count::default(), BTreeMap::new());
            self.minutes.push_back(Minute { number, all, revisions });
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }
}

impl Minute {
    fn is_in(&self, window: Window) -> bool {
        let start = self.number.saturating_mul(MINUTE_MS);
        start < window.end.ms() && start.saturating_add(MINUTE_MS) > window.start.ms()
    }
}

impl Count {
    fn record(&mut self, answered: Answered) {
        self.count += 1;
        self.errors += u64::from(answered.is_error);
        let bucket = &mut self.buckets[bucket(answered.took)];
        *bucket = bucket.saturating_add(1);
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*count);
        }
    }

    fn read(&self) -> Requests {
        let Self { count, errors, .. } = *self;
        let [p50, p90, p99] = [50, 90, 99].map(|percent| self.percentile(percent));
        Requests { count, errors, p50, p90, p99 }
    }

    /// Returns the upper bound of the bucket that contains this percentile.
    fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reached = self.buckets.iter().position(|count| {
            seen += u64::from(*count);
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

/// Returns the bucket for a time. The last one takes everything that is longer.
fn bucket(took: Duration) -> usize {
    let steps = took.as_nanos().div_ceil(STEP.as_nanos());
    // The whole steps below it: a bucket's upper bound belongs to the bucket.
    let below = usize::try_from(steps.saturating_sub(1)).unwrap_or(usize::MAX);
    if below < STEPS {
        return 0;
    }
    let octave = (below / STEPS).ilog2();
    let index = octave as usize * STEPS + (below >> octave) - STEPS + 1;
    index.min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket: 128 us, 144 us, 160 us, …, 240 us, 256 us, 288 us, …
fn bound(index: usize) -> Duration {
    let steps = (STEPS + index % STEPS) << (index / STEPS);
    STEP * u32::try_from(steps).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const HOUR: Duration = Duration::from_secs(3600);

    fn answered(second: i64, took: Duration, is_error: bool) -> Answered {
        Answered { at: Timestamp::from_ms(second * 1000), took, is_error }
    }

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let stats = Stats::new(KindName::Agent);
        stats.keep(["a"].into_iter());
        assert_eq!(stats.read(None).all, Requests::default());
        for number in 1..=100 {
            stats.record(Some("a"), answered(0, MS(number), number > 98), HOUR);
        }
        stats.record(Some("gone"), answered(0, MS(1), true), HOUR);
        let read = stats.read(None);
        assert_eq!((read.all.count, read.all.errors), (101, 3));
        let of = read.revisions["a"];
        assert_eq!((of.count, of.errors, read.revisions.len()), (100, 2, 1));
        assert!(of.p50 >= MS(50) && of.p50 <= MS(57), "{:?}", of.p50);
        assert!(of.p90 >= MS(90) && of.p99 >= MS(99) && of.p99 <= MS(112), "{of:?}");
        stats.keep(["b"].into_iter());
        assert_eq!(stats.read(None).revisions.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(stats.read(None).all.count, 101);
    }

    fn window(start: i64, end: i64) -> Option<Window> {
        let [start, end] = [start, end].map(|second| Timestamp::from_ms(second * 1000));
        Some(Window { start, end })
    }

    #[test]
    fn a_window_has_its_minutes_as_long_as_they_are_kept() {
        let stats = Stats::new(KindName::Agent);
        stats.keep(["a", "b"].into_iter());
        for (second, revision) in [(59, "a"), (60, "a"), (125, "b"), (3600, "b")] {
            stats.record(Some(revision), answered(second, MS(1), second == 60), HOUR);
        }
        let counts = |window| {
            let read = stats.read(window);
            (read.all.count, read.all.errors, read.revisions["a"].count, read.revisions["b"].count)
        };
        assert_eq!(counts(None), (4, 1, 2, 2));
        assert_eq!(counts(window(60, 120)), (1, 1, 1, 0));
        assert_eq!(counts(window(61, 121)), (2, 1, 1, 1), "in whole minutes");
        assert_eq!(counts(window(0, 7200)), (3, 1, 1, 2), "the first minute has gone by then");
        assert_eq!(counts(window(4000, 7200)), (0, 0, 0, 0));
        // A clock that went back adds to the newest minute and loses nothing.
        stats.record(None, answered(90, MS(1), false), HOUR);
        assert_eq!(counts(window(3600, 3601)), (2, 0, 0, 1));
        stats.keep(["b"].into_iter());
        assert_eq!(stats.read(window(0, 7200)).revisions.len(), 1);
        assert!(stats.counts.lock().minutes.iter().all(|minute| minute.revisions.len() <= 1));
    }

    proptest! {
        #[test]
        fn no_more_minutes_are_kept_than_are_set(times in proptest::collection::vec(0i64..20_000, 1..80), minutes in 1u64..10) {
            let stats = Stats::new(KindName::Agent);
            for second in &times {
                let kept = Duration::from_secs(minutes * 60);
                stats.record(Some("any"), answered(*second, MS(1), false), kept);
            }
            let counts = stats.counts.lock();
            prop_assert!(counts.minutes.len() as u64 <= minutes);
            prop_assert!(counts.minutes.iter().zip(counts.minutes.iter().skip(1)).all(|(one, next)| one.number < next.number));
        }

        #[test]
        fn a_time_is_in_the_bucket_that_ends_behind_it(us in 0u64..5_000_000_000) {
            let took = Duration::from_micros(us);
            let index = bucket(took);
            prop_assert!(index == BUCKETS - 1 || took <= bound(index));
            prop_assert!(index == 0 || took > bound(index - 1));
        }
    }
}
