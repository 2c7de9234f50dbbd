//! A world for tests, with a clock that is set by hand and repeatable randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use types::{Timestamp, World};

#[derive(Clone)]
pub(crate) struct Clock {
    uptime_ms: Arc<AtomicI64>,
    /// What the calendar is ahead of the uptime.
    calendar_ms: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn advance_s(&self, seconds: i64) {
        self.uptime_ms.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    /// Sets the calendar back; the uptime goes on.
    pub(crate) fn set_back_s(&self, seconds: i64) {
        self.calendar_ms.fetch_sub(seconds * 1000, Ordering::SeqCst);
    }

    fn uptime_ms(&self) -> i64 {
        self.uptime_ms.load(Ordering::SeqCst)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.uptime_ms() + self.calendar_ms.load(Ordering::SeqCst))
    }
}

pub(crate) fn world() -> (Clock, World) {
    let clock = Clock {
        uptime_ms: Arc::default(),
        calendar_ms: Arc::new(AtomicI64::new(1_800_000_000_000)),
    };
    let seed = AtomicU64::new(1);
    let fill = move |bytes: &mut [u8]| {
        for byte in bytes {
            // A linear congruential generator, whose high bits are good enough to be unique.
            let step = |seed: u64| seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let before = seed
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |seed| Some(step(seed)))
                .unwrap();
            *byte = (before >> 33) as u8;
        }
    };
    let (calendar, steady) = (clock.clone(), clock.clone());
    let world = World::new(move || calendar.now(), fill).with_uptime(move || steady.uptime_ms());
    (clock, world)
}
