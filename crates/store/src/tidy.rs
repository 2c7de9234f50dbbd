//! What keeps the database from growing for ever.

use crate::{Error, Store, Tx, budgets, builds, deliveries, feed, idempotency, models};
use std::ops::AddAssign;
use types::Timestamp;

/// How long changes are kept for followers that were away, at least.
const CHANGES_KEPT_MS: i64 = 7 * 24 * 3_600_000;
/// Changes that are kept however old they are.
const CHANGES_KEPT_MIN: i64 = 10_000;
/// How long the log tells of a call that was made or given up.
const DELIVERIES_KEPT_MS: i64 = 30 * 24 * 3_600_000;
/// Reached shares of budgets are told of in their month; a year of them is kept to look back.
const CROSSINGS_KEPT_MS: i64 = 400 * 24 * 3_600_000;
/// How long it can be told that an address for an upload was used.
const BUILDS_KEPT_MS: i64 = 30 * 24 * 3_600_000;
/// What was used of a window matters while calls that began in it go on.
const LIMITS_KEPT_MS: i64 = 2 * 24 * 3_600_000;
/// The same year as of budgets. A server that was away for longer begins anew.
const MODEL_USAGE_KEPT_MS: i64 = 400 * 24 * 3_600_000;
/// Rows that one transaction forgets.
const BATCH: i64 = 1000;

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    pub changes: u64,
    pub answers: u64,
    pub deliveries: u64,
    pub crossings: u64,
    pub builds: u64,
    pub model_limits: u64,
    pub model_usage: u64,
}

impl AddAssign for Tidied {
    fn add_assign(&mut self, more: Self) {
        self.changes += more.changes;
        self.answers += more.answers;
        self.deliveries += more.deliveries;
        self.crossings += more.crossings;
        self.builds += more.builds;
        self.model_limits += more.model_limits;
        self.model_usage += more.model_usage;
    }
}

impl Store {
    /// Forgets what is too old. Called about once an hour; several servers may do it at once.
    pub async fn tidy(&self, now: Timestamp) -> Result<Tidied, Error> {
        let mut tidied = Tidied::default();
        loop {
            let some = self.write(move |tx| forget_some(tx, now)).await?;
            tidied += some;
            if some == Tidied::default() {
                break;
            }
        }
        self.tidy_keys().await?;
        Ok(tidied)
    }
}

fn forget_some(tx: &mut Tx<'_>, now: Timestamp) -> Result<Tidied, Error> {
    Ok(Tidied {
        changes: feed::trim(tx, now.plus_ms(-CHANGES_KEPT_MS), CHANGES_KEPT_MIN, BATCH)?,
        answers: idempotency::trim(tx, now, BATCH)?,
        deliveries: deliveries::trim(tx, now.plus_ms(-DELIVERIES_KEPT_MS), BATCH)?,
        crossings: budgets::trim(tx, now.plus_ms(-CROSSINGS_KEPT_MS), BATCH)?,
        builds: builds::trim(tx, now.plus_ms(-BUILDS_KEPT_MS), BATCH)?,
        model_limits: models::trim_limits(tx, now.plus_ms(-LIMITS_KEPT_MS), BATCH)?,
        model_usage: models::trim_usage(tx, now.plus_ms(-MODEL_USAGE_KEPT_MS), BATCH)?,
    })
}
