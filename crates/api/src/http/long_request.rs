//! Requests that legitimately take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Put into each request by the code that limits the time of requests. A handler announces through
/// it that it takes long; the time limit is then lifted, and the handler must limit itself.
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
