//! Limits on guessing.

use parking_lot::Mutex;
use std::collections::HashMap;
use types::World;

/// Most names that are watched at once. Names that are being refused are never forgotten before
/// their window is over. To fill all places with such names takes ten attempts each, and an attempt
/// at a password takes a hash, of which a machine computes fewer than that many within a window.
const WATCHED_MAX: usize = 100_000;
/// How many places are freed at once when none is left, so that this rarely happens.
const FREED_AT_ONCE: usize = 10_000;

/// Counts failures by name. Too many within the window cause refusals until the window has passed.
/// It passes on a clock that nobody can set: setting the calendar back must not lock people out
/// until the time has come again.
pub(crate) struct Throttle {
    /// What is attempted, used as label of the metric.
    what: &'static str,
    world: World,
    failures_max: u32,
    window_s: i64,
    watched: Mutex<HashMap<String, Tally>>,
}

#[derive(Clone, Copy)]
struct Tally {
    failures: u32,
    /// On the steady clock.
    since_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts; try again in {} min", wait_s.div_ceil(60))]
pub struct Throttled {
    pub wait_s: u64,
}

impl Throttle {
    pub(crate) fn new(what: &'static str, world: World, failures_max: u32, window_s: i64) -> Self {
        Self { what, world, failures_max, window_s, watched: Mutex::default() }
    }

    /// Counts an attempt before it is made, so that simultaneous attempts cannot slip through
    /// together.
    pub(crate) fn attempt(&self, name: &str) -> Result<(), Throttled> {
        let counted = self.count(name);
        if counted.is_err() {
            metrics::counter!("holm_auth_throttled_total", "what" => self.what).increment(1);
        }
        counted
    }

    fn count(&self, name: &str) -> Result<(), Throttled> {
        let now_ms = self.world.uptime_ms();
        let mut watched = self.watched.lock();
        if watched.len() >= WATCHED_MAX
            && !watched.contains_key(name)
            && !self.make_room(&mut watched, now_ms)
        {
            return Err(Throttled { wait_s: self.window_s.unsigned_abs() });
        }
        let tally =
            watched.entry(name.to_owned()).or_insert(Tally { failures: 0, since_ms: now_ms });
        if self.end_ms(tally) <= now_ms {
            *tally = Tally { failures: 0, since_ms: now_ms };
        }
        if self.refuses(tally) {
            let wait_ms = self.end_ms(tally) - now_ms;
            return Err(Throttled { wait_s: wait_ms.unsigned_abs().div_ceil(1000) });
        }
        tally.failures += 1;
        Ok(())
    }

    fn end_ms(&self, tally: &Tally) -> i64 {
        tally.since_ms + self.window_s * 1000
    }

    fn refuses(&self, tally: &Tally) -> bool {
        tally.failures >= self.failures_max
    }

    /// Forgets names whose window is over, or else the oldest ones that may still try: refused
    /// names stay refused, however many others there are. Returns false if there is no place left.
    fn make_room(&self, watched: &mut HashMap<String, Tally>, now_ms: i64) -> bool {
        watched.retain(|_, tally| self.end_ms(tally) > now_ms);
        if watched.len() < WATCHED_MAX {
            return true;
        }
        let mut free: Vec<_> = watched
            .iter()
            .filter(|(_, tally)| !self.refuses(tally))
            .map(|(name, tally)| (tally.since_ms, name.clone()))
            .collect();
        free.sort_unstable();
        for (_, name) in free.iter().take(FREED_AT_ONCE) {
            watched.remove(name);
        }
        !free.is_empty()
    }

    /// Uncounts an attempt that was not made or should not count. A name without failures is
    /// forgotten: made-up names whose attempts are all taken back must not fill the places.
    pub(crate) fn take_back(&self, name: &str) {
        let mut watched = self.watched.lock();
        let Some(tally) = watched.get_mut(name) else { return };
        tally.failures = tally.failures.saturating_sub(1);
        if tally.failures == 0 {
            watched.remove(name);
        }
    }

    /// Forgets the failures of a name after a correct attempt.
    pub(crate) fn succeeded(&self, name: &str) {
        self.watched.lock().remove(name);
    }
}

#[cfg(test)]
impl Throttle {
    pub(crate) fn watches(&self, name: &str) -> bool {
        self.watched.lock().contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn guessing_closes_the_door_for_a_while() {
        let (clock, world) = fixture::world();
        let throttle = Throttle::new("test", world, 3, 60);
        for _ in 0..3 {
            assert_eq!(throttle.attempt("a@holm.example"), Ok(()));
        }
        assert_eq!(throttle.attempt("a@holm.example"), Err(Throttled { wait_s: 60 }));
        assert_eq!(throttle.attempt("b@holm.example"), Ok(()));
        clock.advance_s(60);
        assert_eq!(throttle.attempt("a@holm.example"), Ok(()));
    }

    #[test]
    fn a_calendar_that_is_set_back_locks_nobody_out() {
        let (clock, world) = fixture::world();
        let throttle = Throttle::new("test", world, 1, 60);
        throttle.attempt("a").unwrap();
        clock.set_back_s(86_400);
        assert_eq!(throttle.attempt("a"), Err(Throttled { wait_s: 60 }));
        clock.advance_s(60);
        throttle.attempt("a").unwrap();
    }

    #[test]
    fn success_forgives_failures() {
        let (_, world) = fixture::world();
        let throttle = Throttle::new("test", world, 1, 60);
        for _ in 0..5 {
            throttle.attempt("a").unwrap();
            throttle.succeeded("a");
        }
    }

    #[test]
    fn what_was_not_tried_does_not_count() {
        let (_, world) = fixture::world();
        let throttle = Throttle::new("test", world, 1, 60);
        for _ in 0..5 {
            throttle.attempt("a").unwrap();
            throttle.take_back("a");
        }
        assert!(!throttle.watches("a"), "made-up names take up no places");
        throttle.attempt("a").unwrap();
        throttle.attempt("a").unwrap_err();
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_frees_nobody() {
        let (_, world) = fixture::world();
        let throttle = Throttle::new("test", world, 2, 60);
        for _ in 0..2 {
            throttle.attempt("locked").unwrap();
        }
        for name in 0..WATCHED_MAX * 2 {
            throttle.attempt(&name.to_string()).unwrap();
        }
        assert!(throttle.watched.lock().len() <= WATCHED_MAX);
        throttle.attempt("locked").unwrap_err();
    }

    #[test]
    fn when_all_are_refused_a_new_name_waits_and_nobody_is_freed() {
        let (clock, world) = fixture::world();
        let throttle = Throttle::new("test", world, 1, 60);
        for name in 0..WATCHED_MAX {
            throttle.attempt(&name.to_string()).unwrap();
        }
        throttle.attempt("new").unwrap_err();
        throttle.attempt("0").unwrap_err();
        clock.advance_s(60);
        throttle.attempt("new").unwrap();
    }
}
