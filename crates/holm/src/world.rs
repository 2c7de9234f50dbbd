//! The program's one clock and one source of randomness.

use std::time::{SystemTime, UNIX_EPOCH};
use types::{Timestamp, World};

pub(crate) fn system() -> World {
    World::new(now, fill)
}

#[expect(clippy::disallowed_methods, reason = "this is where the time that is passed in comes from")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Keys made without randomness would be known to anybody, so a kernel that gives none ends the process.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        std::process::abort();
    }
}
