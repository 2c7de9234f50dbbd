//! Disk work of a pull.

use super::error::PullError;
use crate::error::Error;

/// Runs disk work on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, PullError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|error| Error::Read(std::io::Error::other(error)))??)
}
