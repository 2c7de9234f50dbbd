//! Runs work on files on threads that may block, and tells long work when to stop.

use crate::blocking;
use crate::http::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells long-running work that nobody waits for it any more.
#[derive(Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Requests the stop when it is dropped, as happens with the future of a request whose caller has
/// gone.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.ask();
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    blocking::run(work).await?
}

/// Like `blocking`, for long work that should stop when its caller has gone.
pub(super) async fn blocking_until<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let stop = Stop::default();
    let _on_drop = StopOnDrop(stop.clone());
    blocking(move || work(&stop)).await
}
