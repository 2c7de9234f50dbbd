//! The program's only clock and source of randomness.

use std::time::{SystemTime, UNIX_EPOCH};
use types::{Timestamp, World};

pub(crate) fn system() -> World {
    World::new(now, fill).with_uptime(uptime_ms)
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where the time that is passed in comes from"
)]
fn now() -> Timestamp {
    // A clock before 1970 was never set. Time then stands at 1970, at which all certificates and
    // tokens are refused, until somebody sets the clock.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(0).plus(since)
}

/// Milliseconds since boot, including time in which the machine was suspended.
fn uptime_ms() -> i64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000)
}

/// Fills a buffer with random bytes. Keys made without randomness could be guessed by anybody, so
/// the process aborts if the kernel provides none.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        std::process::abort();
    }
}
