//! A world for tests, with a clock that is set by hand and repeatable randomness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use types::{Timestamp, World};

#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn advance_s(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

pub(crate) fn world() -> (Clock, World) {
    let clock = Clock(Arc::new(AtomicI64::new(1_800_000_000_000)));
    let (now, seed) = (clock.clone(), AtomicU64::new(1));
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
    (clock, World::new(move || Timestamp::from_ms(now.0.load(Ordering::SeqCst)), fill))
}
