//! Requests that rightly take long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whoever bounds the time of requests puts one into each, and lets it go on when patience was
/// asked for: the handler then bounds itself.
#[derive(Debug, Clone, Default)]
pub struct Patience(Arc<AtomicBool>);

impl Patience {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn was_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
