//! The program's one clock and one source of randomness.

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
    // A clock before 1970 was never set. It is taken for the beginning, where every certificate and
    // token is refused, until somebody sets it.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(0).plus(since)
}

/// Goes on while the machine sleeps, as the time does.
fn uptime_ms() -> i64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    since.tv_sec.saturating_mul(1000).saturating_add(since.tv_nsec / 1_000_000)
}

/// Keys made without randomness would be known to anybody, so a kernel that gives none ends the
/// process.
fn fill(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        std::process::abort();
    }
}
