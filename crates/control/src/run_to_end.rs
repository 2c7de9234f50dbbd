//! Work that goes on when whoever asked for it is gone: what it made on a machine must get its row.

use std::future::Future;
use tracing::Instrument;

/// The work panicked, or the server is ending.
#[derive(Debug, thiserror::Error)]
#[error("it was interrupted")]
pub(crate) struct Interrupted;

/// Runs work to its end, even if nobody waits for it any more.
pub(crate) fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Result<T, Interrupted>> {
    // Not an `async fn`, so that the future of the caller does not hold the work too.
    let running = tokio::spawn(work.in_current_span());
    async { running.await.map_err(|_| Interrupted) }
}
