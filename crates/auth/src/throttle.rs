//! Slows down those who guess.

use parking_lot::Mutex;
use std::collections::HashMap;
use types::{Timestamp, World};

/// Names that are watched at once; beyond that the longest quiet ones are forgotten.
const WATCHED_MAX: usize = 10_000;

/// Counts failures by name; too many within the window close the door until the window has passed.
pub(crate) struct Throttle {
    world: World,
    failures_max: u32,
    window_s: i64,
    watched: Mutex<HashMap<String, Tally>>,
}

struct Tally {
    failures: u32,
    since: Timestamp,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many wrong attempts; try again in {} min", wait_s.div_ceil(60))]
pub struct Throttled {
    pub wait_s: u64,
}

impl Throttle {
    pub(crate) fn new(world: World, failures_max: u32, window_s: i64) -> Self {
        Self { world, failures_max, window_s, watched: Mutex::default() }
    }

    /// Counts an attempt before it is made, so that attempts at the same time cannot slip through together.
    pub(crate) fn attempt(&self, name: &str) -> Result<(), Throttled> {
        let now = self.world.now();
        let ends = |tally: &Tally| tally.since.plus_s(self.window_s);
        let mut watched = self.watched.lock();
        if watched.len() >= WATCHED_MAX && !watched.contains_key(name) {
            watched.retain(|_, tally| ends(tally) > now);
            if watched.len() >= WATCHED_MAX {
                watched.clear();
            }
        }
        let tally = watched.entry(name.to_owned()).or_insert(Tally { failures: 0, since: now });
        if ends(tally) <= now {
            *tally = Tally { failures: 0, since: now };
        }
        if tally.failures >= self.failures_max {
            return Err(Throttled { wait_s: ends(tally).since(now).unsigned_abs().div_ceil(1000) });
        }
        tally.failures += 1;
        Ok(())
    }

    /// The attempt was right: its failures no longer count.
    pub(crate) fn succeeded(&self, name: &str) {
        self.watched.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn guessing_closes_the_door_for_a_while() {
        let (clock, world) = fixture::world();
        let throttle = Throttle::new(world, 3, 60);
        for _ in 0..3 {
            assert_eq!(throttle.attempt("a@holm.example"), Ok(()));
        }
        assert_eq!(throttle.attempt("a@holm.example"), Err(Throttled { wait_s: 60 }));
        assert_eq!(throttle.attempt("b@holm.example"), Ok(()));
        clock.advance_s(60);
        assert_eq!(throttle.attempt("a@holm.example"), Ok(()));
    }

    #[test]
    fn success_forgives_failures() {
        let (_, world) = fixture::world();
        let throttle = Throttle::new(world, 1, 60);
        for _ in 0..5 {
            throttle.attempt("a").unwrap();
            throttle.succeeded("a");
        }
    }

    #[test]
    fn a_flood_of_names_is_bounded() {
        let (_, world) = fixture::world();
        let throttle = Throttle::new(world, 1, 60);
        for name in 0..WATCHED_MAX * 2 {
            throttle.attempt(&name.to_string()).unwrap();
        }
        assert!(throttle.watched.lock().len() <= WATCHED_MAX);
    }
}
