//! Leaves a model that only fails alone for a while, and limits how often it is asked again.

use super::settings::ModelSettings;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::time::Instant;

/// Closed while requests pass, open while none does, half open while one is tried.
#[derive(Debug)]
pub(crate) struct Breaker(Mutex<State>);

#[derive(Debug, Clone, Copy)]
enum State {
    Closed { failures: u32, since: Option<Instant> },
    Open { until: Instant },
    HalfOpen,
}

/// Permission to send a request. If it is dropped without a result, the next request may try.
pub(crate) struct Admission<'b> {
    breaker: &'b Breaker,
    is_probe: bool,
    told: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self(Mutex::new(State::Closed { failures: 0, since: None }))
    }
}

impl Breaker {
    /// Lets a request through. `None` means the breaker is open.
    pub(crate) fn admit(&self, now: Instant) -> Option<Admission<'_>> {
        let mut state = self.0.lock();
        let is_probe = match *state {
            State::Closed { .. } => false,
            State::Open { until } if until <= now => {
                *state = State::HalfOpen;
                true
            }
            State::Open { .. } | State::HalfOpen => return None,
        };
        Some(Admission { breaker: self, is_probe, told: false })
    }

    #[cfg(test)]
    fn is_open(&self) -> bool {
        !matches!(*self.0.lock(), State::Closed { .. })
    }
}

impl Admission<'_> {
    pub(crate) fn went_well(mut self) {
        self.told = true;
        *self.breaker.0.lock() = State::Closed { failures: 0, since: None };
    }

    /// Records a failure that is the model's own fault.
    pub(crate) fn failed(mut self, now: Instant, settings: &ModelSettings) {
        self.told = true;
        let mut state = self.breaker.0.lock();
        let opened = State::Open { until: now + settings.breaker_pause };
        let was_open = !matches!(*state, State::Closed { .. });
        *state = match *state {
            State::HalfOpen => opened,
            open @ State::Open { .. } => open,
            State::Closed { failures, since } => {
                let fresh = since.filter(|since| *since + settings.breaker_window > now);
                let failures = if fresh.is_some() { failures + 1 } else { 1 };
                match failures >= settings.breaker_failures {
                    true => opened,
                    false => State::Closed { failures, since: fresh.or(Some(now)) },
                }
            }
        };
        if !was_open && !matches!(*state, State::Closed { .. }) {
            metrics::counter!("holm_model_breaker_opened_total").increment(1);
        }
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        if self.is_probe && !self.told {
            *self.breaker.0.lock() = State::Open { until: Instant::now() };
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
    use std::time::Duration;

    fn settings() -> ModelSettings {
        ModelSettings { breaker_failures: 2, ..ModelSettings::default() }
    }

    #[tokio::test]
    async fn it_opens_after_failures_and_lets_one_try() {
        let (breaker, settings, now) = (Breaker::default(), settings(), Instant::now());
        breaker.admit(now).unwrap().failed(now, &settings);
        assert!(!breaker.is_open());
        breaker.admit(now).unwrap().failed(now, &settings);
        assert!(breaker.admit(now).is_none());
        let later = now + settings.breaker_pause;
        let probe = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_none(), "one at a time");
        // The caller of the probe went away.
        drop(probe);
        let again = Instant::now().max(later);
        breaker.admit(again).unwrap().failed(again, &settings);
        assert!(breaker.admit(again).is_none());
        breaker.admit(again + settings.breaker_pause).unwrap().went_well();
        assert!(!breaker.is_open() && breaker.admit(again).is_some());
    }

    #[tokio::test]
    async fn failures_long_ago_do_not_count() {
        let (breaker, settings, now) = (Breaker::default(), settings(), Instant::now());
        breaker.admit(now).unwrap().failed(now, &settings);
        let later = now + settings.breaker_window + Duration::from_secs(1);
        breaker.admit(later).unwrap().failed(later, &settings);
        assert!(!breaker.is_open());
        breaker.admit(later).unwrap().went_well();
        breaker.admit(later).unwrap().failed(later, &settings);
        assert!(!breaker.is_open());
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
