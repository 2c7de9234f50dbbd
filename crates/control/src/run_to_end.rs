//! Work that goes on when whoever asked for it is gone: what it made on a machine must get its row.

use std::future::Future;
use tracing::Instrument;

/// The work panicked, or the server is ending.
#[derive(Debug, thiserror::Error)]
#[error("it was interrupted")]
pub(crate) struct Interrupted;

/// Runs work to its end, even if nobody waits for it any more.
pub(crate) async fn run_to_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Interrupted> {
    tokio::spawn(work.in_current_span()).await.map_err(|_| Interrupted)
}
