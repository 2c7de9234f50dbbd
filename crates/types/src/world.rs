//! Time and randomness, passed in everywhere, so that a whole-system test can run a week in a
//! second and reproduce a failure.

use crate::Timestamp;
use std::fmt;
use std::sync::Arc;

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

/// The source of a program's time and random bytes.
#[derive(Clone)]
pub struct World {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    uptime: Option<Arc<dyn Fn() -> i64 + Send + Sync>>,
    fill: Arc<Fill>,
}

impl World {
    /// Builds a world from its two sources. The program passes the system's; tests pass their own.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        fill: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), uptime: None, fill: Arc::new(fill) }
    }

    /// Adds a clock that nobody can set: milliseconds since the machine started. Without one,
    /// [`World::uptime_ms`] uses the time of day.
    #[must_use]
    pub fn with_uptime(self, uptime_ms: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self { uptime: Some(Arc::new(uptime_ms)), ..self }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Returns milliseconds on a clock that only goes forward (if [`World::with_uptime`] gave one).
    /// Tells how long something took, not when it happened.
    pub fn uptime_ms(&self) -> i64 {
        self.uptime.as_ref().map_or_else(|| self.now().ms(), |uptime| uptime())
    }

    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.fill)(&mut bytes);
        bytes
    }

    /// Returns random lower-case letters and digits that are hard to confuse, with five bits of
    /// randomness each.
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
