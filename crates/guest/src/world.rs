//! The real time and the real randomness.

use std::time::{SystemTime, UNIX_EPOCH};
use types::{Timestamp, World};

pub(crate) fn real() -> World {
    World::new(now, fill)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where the time that is passed in comes from"
)]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Names made without randomness would collide, so a kernel that gives none ends the program.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        std::process::abort();
    }
}
