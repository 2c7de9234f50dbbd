//! How often and how patiently a registry is asked.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct RetryPolicy {
    pub layers_at_once: usize,
    pub attempts_max: u32,
    /// Pause before the second attempt; doubled with each further one.
    pub pause: Duration,
    pub pause_max: Duration,
    /// Longest time without receiving a byte.
    pub stall: Duration,
    /// Longest time that fetching a whole image may take.
    pub whole: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            layers_at_once: 4,
            attempts_max: 5,
            pause: Duration::from_millis(250),
            pause_max: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            whole: Duration::from_secs(4 * 3600),
        }
    }
}
