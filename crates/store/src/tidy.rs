//! Removal of old rows, so that the database does not grow forever.

use crate::{Error, Store, Tx, budgets, builds, deliveries, feed, firings, idempotency, models};
use std::ops::AddAssign;
use types::Timestamp;
use types::time::DAY_MS;

/// How long changes are kept, at least, for followers that were away.
const CHANGES_KEPT_MS: i64 = 7 * DAY_MS;
/// Number of changes that are kept however old they are.
const CHANGES_KEPT_MIN: i64 = 10_000;
/// How long the log shows a call that was delivered or given up.
const DELIVERIES_KEPT_MS: i64 = 30 * DAY_MS;
/// How long reached thresholds of budgets are kept. They are shown in their month; a year of them
/// is kept to look back on.
const CROSSINGS_KEPT_MS: i64 = 400 * 24 * 3_600_000;
/// How long the server remembers that an upload address was used.
const BUILDS_KEPT_MS: i64 = 30 * DAY_MS;
/// How long an ended window is kept: its usage matters while calls that began in it continue.
const LIMITS_KEPT_MS: i64 = 2 * 24 * 3_600_000;
/// How long usage of models is kept, like budgets. A server that was away for longer starts from
/// scratch.
const MODEL_USAGE_KEPT_MS: i64 = 400 * 24 * 3_600_000;
/// How long the counts of schedules are kept; they are shown for a week.
const SCHEDULE_COUNTS_KEPT_MS: i64 = 8 * 24 * 3_600_000;
/// Most rows that one transaction deletes from each table.
const BATCH: i64 = 1000;

/// Numbers of deleted rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tidied {
    pub changes: u64,
    pub answers: u64,
    pub deliveries: u64,
    pub crossings: u64,
    pub builds: u64,
    pub model_limits: u64,
    pub model_usage: u64,
    pub schedule_counts: u64,
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
        self.schedule_counts += more.schedule_counts;
    }
}

impl Store {
    /// Deletes what is too old. Called about once an hour; several servers may do it at once.
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
        schedule_counts: firings::trim(tx, now.plus_ms(-SCHEDULE_COUNTS_KEPT_MS), BATCH)?,
    })
}
