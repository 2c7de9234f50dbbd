//! The real clock and the real randomness.

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
    // A wrong clock may be before 1970.
    Timestamp::from_ms(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => ms(since),
        Err(error) => -ms(error.duration()),
    })
}

#[expect(clippy::expect_used, reason = "it holds for 292 million years")]
fn ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("milliseconds fit")
}

/// Fills a buffer with random bytes. Names made without randomness would collide, so the program
/// aborts if the kernel provides none.
fn fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()) {
            Ok(length) => bytes = &mut bytes[length..],
            Err(Errno::INTR) => {}
            Err(_) => std::process::abort(),
        }
    }
}
