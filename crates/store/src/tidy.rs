//! What keeps the database from growing for ever.

use crate::{Error, Store, deliveries, feed, idempotency};
use types::Timestamp;

/// How long changes are kept for followers that were away, at least.
const CHANGES_KEPT_MS: i64 = 7 * 24 * 3_600_000;
/// Changes that are kept however old they are.
const CHANGES_KEPT_MIN: i64 = 10_000;
/// How long the log tells of a call that was made or given up.
const DELIVERIES_KEPT_MS: i64 = 30 * 24 * 3_600_000;
/// Rows that one transaction forgets.
const BATCH: i64 = 1000;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    pub changes: u64,
    pub answers: u64,
    pub deliveries: u64,
}

impl Store {
    /// Forgets what is too old. Called about once an hour; several servers may do it at once.
    pub async fn tidy(&self, now: Timestamp) -> Result<Tidied, Error> {
        let mut tidied = Tidied::default();
        loop {
            let older_than = now.plus_ms(-CHANGES_KEPT_MS);
            let (changes, answers, sent) = self
                .write(move |tx| {
                    let changes = feed::trim(tx, older_than, CHANGES_KEPT_MIN, BATCH)?;
                    let sent = deliveries::trim(tx, now.plus_ms(-DELIVERIES_KEPT_MS), BATCH)?;
                    Ok::<_, Error>((changes, idempotency::trim(tx, now, BATCH)?, sent))
                })
                .await?;
            tidied.changes += changes;
            tidied.answers += answers;
            tidied.deliveries += sent;
            if changes == 0 && answers == 0 && sent == 0 {
                break;
            }
        }
        self.tidy_keys().await?;
        Ok(tidied)
    }
}
