//! Where the output of running things is written.

use super::rows;
use jobs::logs::{LogWriter, Logs};
use store::logs::Source;

/// Pieces of output of one instance buffered on their way to its log. When they are full, its
/// program waits.
pub(super) const PIECES_MAX: usize = 64;

/// Returns the log writer for something that begins to print, or (`found`) that an earlier run of
/// this program may have recorded in part.
pub(crate) async fn writer(logs: &Logs, source: Source, found: bool) -> LogWriter {
    if !found {
        return logs.begin(source);
    }
    loop {
        match logs.resume(source.clone()).await {
            Ok(writer) => return writer,
            // Without the log's position, lines would be stored twice or lost. Meanwhile the output
            // waits in the instance.
            Err(error) => {
                tracing::error!(%error, name = source.name, "what is kept of an output cannot be read; it is tried again");
                tokio::time::sleep(rows::RETRY_AFTER).await;
            }
        }
    }
}
