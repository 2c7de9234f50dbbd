//! Time and randomness, passed in, so that a whole-system test can run a week in a second and repeat a failure.

use crate::Timestamp;
use std::fmt;
use std::sync::Arc;

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

/// Where the time and the random bytes of a program come from.
#[derive(Clone)]
pub struct World {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    fill: Arc<Fill>,
}

impl World {
    /// Builds a world from its two sources. The program passes the system's; tests pass their own.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        fill: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), fill: Arc::new(fill) }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.fill)(&mut bytes);
        bytes
    }

    /// Lower-case letters and digits that are hard to confuse, five bits of randomness each.
    pub fn random_text(&self, length: usize) -> String {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut bytes = vec![0; length];
        (self.fill)(&mut bytes);
        bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}
