//! Where the output of what runs goes.

use jobs::logs::{LogWriter, Logs};
use std::time::Duration;
use store::logs::Source;

/// After a failure of the database, wait before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Pieces of the output of one instance on their way to its log. Beyond this its program waits.
pub(super) const PIECES_MAX: usize = 64;

/// The log of something that begins to print, or that an earlier run of this program may have
/// recorded in part.
pub(crate) async fn writer(logs: &Logs, source: Source, found: bool) -> LogWriter {
    if !found {
        return logs.begin(source);
    }
    loop {
        match logs.resume(source.clone()).await {
            Ok(writer) => return writer,
            // Without it lines would be kept twice or not at all. The output waits in the instance.
            Err(error) => {
                tracing::error!(%error, name = source.name, "what is kept of an output cannot be read; it is tried again");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}
