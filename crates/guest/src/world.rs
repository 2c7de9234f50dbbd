//! The real time and the real randomness.

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::{Timestamp, World};

pub(crate) fn real() -> World {
    World::new(now, fill)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where the time that is passed in comes from"
)]
fn now() -> Timestamp {
    // A clock that is wrong may stand before 1970.
    Timestamp::from_ms(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => ms(since),
        Err(error) => -ms(error.duration()),
    })
}

#[expect(clippy::expect_used, reason = "it holds for 292 million years")]
fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("milliseconds fit")
}

/// Names made without randomness would collide, so a kernel that gives none ends the program.
fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(length) => bytes = &mut bytes[length..],
            Err(Errno::INTR) => {}
            Err(_) => std::process::abort(),
        }
    }
}
