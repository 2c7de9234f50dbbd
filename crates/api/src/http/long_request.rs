//! Requests that rightly take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever bounds the time of requests puts one into each, and lets it go on when the handler says
/// that it takes long: the handler then bounds itself.
#[derive(Debug, Clone, Default)]
pub struct LongRequest(Arc<AtomicBool>);

impl LongRequest {
    pub(crate) fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_announced(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
