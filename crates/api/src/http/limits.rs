//! Rate limits for keys, workspaces and triggers.

use control::{Error, Rate, Settings};
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;
use std::num::NonZeroU32;
use std::time::Duration;
use types::World;

/// The steady clock of the world. Setting the calendar back must not lock callers out until the time
/// has come again.
#[derive(Clone)]
struct WorldClock(World);

impl Clock for WorldClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        let uptime_ms = u64::try_from(self.0.uptime_ms()).unwrap_or_default();
        Nanos::new(uptime_ms.saturating_mul(1_000_000))
    }
}

struct Limiter {
    clock: WorldClock,
    keys: RateLimiter<String, DashMapStateStore<String>, WorldClock, NoOpMiddleware<Nanos>>,
    tidied_at: Mutex<Nanos>,
}

/// How many keys are remembered. Above this number, keys that have their full allowance again are
/// forgotten. The rest are those used within the last seconds, and all of them belong to existing
/// keys, people, workspaces and triggers.
const REMEMBERED_MAX: usize = 100_000;
/// How often keys are forgotten. Going through all of them takes a while, and must not delay every
/// request when there are many.
const TIDY_EVERY: Duration = Duration::from_secs(1);

impl Limiter {
    fn new(rate: Rate, world: &World) -> Self {
        let per_second = NonZeroU32::new(rate.per_second).unwrap_or(NonZeroU32::MIN);
        let burst = NonZeroU32::new(rate.burst).unwrap_or(per_second);
        let clock = WorldClock(world.clone());
        let quota = Quota::per_second(per_second).allow_burst(burst);
        let keys = RateLimiter::new(quota, DashMapStateStore::default(), clock.clone());
        Self { keys, clock, tidied_at: Mutex::new(Nanos::new(0)) }
    }

    /// Forgets old keys, and returns whether it was time to do so.
    fn tidy(&self) -> bool {
        let now = self.clock.now();
        {
            let mut tidied_at = self.tidied_at.lock();
            if now < *tidied_at + Nanos::from(TIDY_EVERY) {
                return false;
            }
            *tidied_at = now;
        }
        self.keys.retain_recent();
        true
    }

    fn take(&self, key: &str) -> Result<(), Error> {
        if self.keys.len() > REMEMBERED_MAX {
            self.tidy();
        }
        // The key is only copied if it is new to the limiter's map or refused.
        self.keys.check_key(&key.to_owned()).map_err(|refusal| {
            let wait = refusal.wait_time_from(self.clock.now());
            Error::TooMany { retry_after_s: wait.as_secs() + 1 }
        })
    }
}

pub(crate) struct Limits {
    keys: Limiter,
    workspaces: Limiter,
    triggers: Limiter,
}

impl Limits {
    pub(crate) fn new(settings: &Settings, world: &World) -> Self {
        Self {
            keys: Limiter::new(settings.key_rate, world),
            workspaces: Limiter::new(settings.workspace_rate, world),
            triggers: Limiter::new(settings.trigger_rate, world),
        }
    }

    /// Counts one request with a credential.
    pub(crate) fn take_key(&self, key: &str) -> Result<(), Error> {
        self.keys.take(key)
    }

    /// Counts one request within a workspace.
    pub(crate) fn take_workspace(&self, workspace: &str) -> Result<(), Error> {
        self.workspaces.take(workspace)
    }

    /// Counts one request to a public trigger, whose caller is unknown.
    pub(crate) fn take_trigger(&self, workspace: &str, address: &str) -> Result<(), Error> {
        self.triggers.take(&format!("{workspace}/{address}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};
    use types::Timestamp;

    #[test]
    fn a_burst_is_allowed_and_then_refused_until_time_passes() {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let clock = Arc::clone(&now);
        let world = World::new(move || Timestamp::from_ms(clock.load(Ordering::SeqCst)), |_| {});
        let limiter = Limiter::new(Rate { per_second: 1, burst: 2 }, &world);
        assert!(limiter.take("a").is_ok() && limiter.take("a").is_ok());
        assert!(matches!(limiter.take("a"), Err(Error::TooMany { retry_after_s: 1.. })));
        assert!(limiter.take("b").is_ok(), "another key is not concerned");
        now.fetch_add(1_000, Ordering::SeqCst);
        assert!(limiter.take("a").is_ok());
    }

    #[test]
    fn a_calendar_that_is_set_back_locks_nobody_out() {
        let (now, uptime_ms) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(1000)));
        let (calendar, steady) = (Arc::clone(&now), Arc::clone(&uptime_ms));
        let world = World::new(move || Timestamp::from_ms(calendar.load(Ordering::SeqCst)), |_| {})
            .with_uptime(move || steady.load(Ordering::SeqCst));
        let limiter = Limiter::new(Rate { per_second: 1, burst: 1 }, &world);
        now.store(3 * 86_400_000, Ordering::SeqCst);
        limiter.take("a").unwrap();
        limiter.take("a").unwrap_err();
        now.store(0, Ordering::SeqCst);
        uptime_ms.fetch_add(1000, Ordering::SeqCst);
        limiter.take("a").unwrap();
    }

    #[test]
    fn many_keys_neither_free_who_is_refused_nor_slow_down_everybody() {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let clock = Arc::clone(&now);
        let world = World::new(move || Timestamp::from_ms(clock.load(Ordering::SeqCst)), |_| {});
        let limiter = Limiter::new(Rate { per_second: 1, burst: 2 }, &world);
        assert!(limiter.take("a").is_ok() && limiter.take("a").is_ok());
        for key in 0..REMEMBERED_MAX + 10 {
            limiter.take(&key.to_string()).unwrap();
        }
        assert!(
            !limiter.tidy(),
            "it was done by the first request above the limit, and is not done with each"
        );
        limiter.take("a").unwrap_err();
        now.fetch_add(5_000, Ordering::SeqCst);
        limiter.take("a").unwrap();
        assert!(limiter.keys.len() < 10, "those that have not asked are forgotten");
    }
}
