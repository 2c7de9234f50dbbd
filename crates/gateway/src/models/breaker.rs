//! Leaves a model that only fails alone for a while, and limits how often it is asked again.

use super::settings::ModelSettings;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Closed while requests pass, open while none does, half open while one is tried.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: State,
    /// Rises when it opens and when it closes. A result counts only in the time it was admitted in:
    /// what was asked before says nothing about the model as it is now.
    generation: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed {
        failures: u32,
        since: Option<Instant>,
    },
    Open {
        until: Instant,
    },
    /// One request is tried. If it is not answered by `until`, another one is tried beside it.
    HalfOpen {
        until: Instant,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0, since: None }
    }
}

/// Permission to send a request. If it is dropped without a result, the next request may try.
pub(crate) struct Admission<'b> {
    breaker: &'b Breaker,
    generation: u64,
    told: bool,
}

impl Breaker {
    /// Lets a request through. If the breaker is open, returns how long no other is let through.
    pub(crate) fn admit(
        &self,
        now: Instant,
        settings: &ModelSettings,
    ) -> Result<Admission<'_>, Duration> {
        let mut inner = self.0.lock();
        match inner.state {
            State::Closed { .. } => {}
            State::Open { until } | State::HalfOpen { until } if until <= now => {
                inner.state = State::HalfOpen { until: now + settings.breaker_pause };
            }
            State::Open { until } | State::HalfOpen { until } => return Err(until - now),
        }
        Ok(Admission { breaker: self, generation: inner.generation, told: false })
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        !matches!(self.0.lock().state, State::Closed { .. })
    }
}

impl Inner {
    fn close(&mut self) {
        if !matches!(self.state, State::Closed { .. }) {
            self.generation += 1;
        }
        self.state = State::default();
    }

    fn fail(&mut self, now: Instant, settings: &ModelSettings) {
        let opened = State::Open { until: now + settings.breaker_pause };
        self.state = match self.state {
            State::HalfOpen { .. } => opened,
            open @ State::Open { .. } => open,
            State::Closed { failures, since } => {
                let fresh = since.filter(|since| *since + settings.breaker_window > now);
                let failures = if fresh.is_some() { failures + 1 } else { 1 };
                if failures < settings.breaker_failures {
                    State::Closed { failures, since: fresh.or(Some(now)) }
                } else {
                    self.generation += 1;
                    metrics::counter!("holm_model_breaker_opened_total").increment(1);
                    opened
                }
            }
        };
    }
}

impl Admission<'_> {
    pub(crate) fn went_well(mut self) {
        self.tell(Inner::close);
    }

    /// Records a failure that is the model's own fault.
    pub(crate) fn failed(mut self, now: Instant, settings: &ModelSettings) {
        self.tell(|inner| inner.fail(now, settings));
    }

    fn tell(&mut self, result: impl FnOnce(&mut Inner)) {
        self.told = true;
        let mut inner = self.breaker.0.lock();
        if inner.generation == self.generation {
            result(&mut inner);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.tell(|inner| {
                if matches!(inner.state, State::HalfOpen { .. }) {
                    inner.state = State::Open { until: Instant::now() };
                }
            });
        }
    }
}

/// Limits retries to a share of the requests, so that they never multiply the load of a failing
/// model.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

/// The price of one retry.
const RETRY: u32 = 100;
/// The most that can be saved up.
const SAVED_MAX: u32 = 10 * RETRY;

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(SAVED_MAX / 2))
    }
}

impl Budget {
    pub(crate) fn earn(&self, percent: u32) {
        let more = |saved: u32| Some(saved.saturating_add(percent).min(SAVED_MAX));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes one retry from the budget, and returns whether there was one.
    pub(crate) fn spend(&self) -> bool {
        let less = |saved: u32| saved.checked_sub(RETRY);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ModelSettings {
        ModelSettings { breaker_failures: 2, ..ModelSettings::default() }
    }

    #[tokio::test]
    async fn it_opens_after_failures_and_lets_one_try() {
        let (breaker, settings, now) = (Breaker::default(), settings(), Instant::now());
        breaker.admit(now, &settings).unwrap().failed(now, &settings);
        assert!(!breaker.is_open());
        breaker.admit(now, &settings).unwrap().failed(now, &settings);
        assert_eq!(breaker.admit(now, &settings).err(), Some(settings.breaker_pause));
        let later = now + settings.breaker_pause;
        let probe = breaker.admit(later, &settings).unwrap();
        assert!(breaker.admit(later, &settings).is_err(), "one at a time");
        // The caller of the probe went away.
        drop(probe);
        let again = Instant::now().max(later);
        breaker.admit(again, &settings).unwrap().failed(again, &settings);
        assert!(breaker.admit(again, &settings).is_err());
        breaker.admit(again + settings.breaker_pause, &settings).unwrap().went_well();
        assert!(!breaker.is_open() && breaker.admit(again, &settings).is_ok());
    }

    #[tokio::test]
    async fn failures_long_ago_do_not_count() {
        let (breaker, settings, now) = (Breaker::default(), settings(), Instant::now());
        breaker.admit(now, &settings).unwrap().failed(now, &settings);
        let later = now + settings.breaker_window + Duration::from_secs(1);
        breaker.admit(later, &settings).unwrap().failed(later, &settings);
        assert!(!breaker.is_open());
        breaker.admit(later, &settings).unwrap().went_well();
        breaker.admit(later, &settings).unwrap().failed(later, &settings);
        assert!(!breaker.is_open());
    }

    #[tokio::test]
    async fn what_was_asked_before_it_opened_or_closed_does_not_count() {
        let (breaker, settings, now) = (Breaker::default(), settings(), Instant::now());
        let admit = |at| breaker.admit(at, &settings);
        let late: Vec<_> = (0..5).map(|_| admit(now).unwrap()).collect();
        let [well, bad, dropped, first, second] = <[_; 5]>::try_from(late).ok().unwrap();
        first.failed(now, &settings);
        second.failed(now, &settings);
        well.went_well();
        assert!(breaker.is_open(), "the success is from before");
        let later = now + settings.breaker_pause;
        let probe = admit(later).unwrap();
        drop(dropped);
        assert!(admit(later).is_err(), "the probe is still on its way");
        bad.failed(later, &settings);
        probe.went_well();
        assert!(!breaker.is_open());
        // The same the other way round: a probe that ends after another one has closed it.
        let open = || (0..2).for_each(|_| admit(later).unwrap().failed(later, &settings));
        open();
        let slow = admit(later + settings.breaker_pause).unwrap();
        admit(later + 2 * settings.breaker_pause).unwrap().went_well();
        slow.failed(later, &settings);
        let once = admit(later).unwrap();
        once.failed(later, &settings);
        assert!(!breaker.is_open(), "one failure since it closed");
    }

    #[tokio::test]
    async fn a_slow_probe_does_not_keep_others_waiting_for_its_answer() {
        let (breaker, settings, now) = (Breaker::default(), settings(), Instant::now());
        let admit = |at| breaker.admit(at, &settings);
        (0..2).for_each(|_| admit(now).unwrap().failed(now, &settings));
        let slow = admit(now + settings.breaker_pause).unwrap();
        let second = admit(now + 2 * settings.breaker_pause);
        assert!(second.is_ok() && admit(now + 2 * settings.breaker_pause).is_err());
        slow.went_well();
        assert!(!breaker.is_open(), "a late answer is good news all the same");
    }

    #[test]
    fn retries_are_a_share_of_requests() {
        let budget = Budget::default();
        let retries = (0..1000)
            .filter(|_| {
                budget.earn(20);
                budget.spend()
            })
            .count();
        assert!((200..=205).contains(&retries), "{retries}");
    }
}
