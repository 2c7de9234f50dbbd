//! What keeps the database from growing for ever.

use crate::{Error, Store, budgets, feed, idempotency};
use types::Timestamp;

/// How long changes are kept for followers that were away, at least.
const CHANGES_KEPT_MS: i64 = 7 * 24 * 3_600_000;
/// Changes that are kept however old they are.
const CHANGES_KEPT_MIN: i64 = 10_000;
/// Reached shares of budgets are told of in their month; a year of them is kept to look back.
const CROSSINGS_KEPT_MS: i64 = 400 * 24 * 3_600_000;
/// Rows that one transaction forgets.
const BATCH: i64 = 1000;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    pub changes: u64,
    pub answers: u64,
    pub crossings: u64,
}

impl Store {
    /// Forgets what is too old. Called about once an hour; several servers may do it at once.
    pub async fn tidy(&self, now: Timestamp) -> Result<Tidied, Error> {
        let mut tidied = Tidied::default();
        loop {
            let (older_than, long_ago) = (now.plus_ms(-CHANGES_KEPT_MS), now.plus_ms(-CROSSINGS_KEPT_MS));
            let (changes, answers, crossings) = self
                .write(move |tx| {
                    let changes = feed::trim(tx, older_than, CHANGES_KEPT_MIN, BATCH)?;
                    let answers = idempotency::trim(tx, now, BATCH)?;
                    Ok::<_, Error>((changes, answers, budgets::trim(tx, long_ago, BATCH)?))
                })
                .await?;
            tidied.changes += changes;
            tidied.answers += answers;
            tidied.crossings += crossings;
            if changes + answers + crossings == 0 {
                break;
            }
        }
        self.tidy_keys().await?;
        Ok(tidied)
    }
}
