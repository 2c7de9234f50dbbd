//! What several tests use.

use types::{Timestamp, World};

/// The time in tests whose clock stands still.
pub(crate) const HELD_AT_MS: i64 = 1_780_000_000_123;

pub(crate) fn fill(bytes: &mut [u8]) {
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), bytes).unwrap();
}

pub(crate) fn world() -> World {
    World::new(|| Timestamp::from_ms(HELD_AT_MS), fill)
}
