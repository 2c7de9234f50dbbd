//! Counts of firings by the minute in which they began.

use super::Submission;
use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::WorkspaceId;
use types::time::MINUTE_MS;

const TABLE: &str = "schedule_minutes";
/// Number of rows over which the counts of one minute are spread.
const SHARDS: i64 = 16;

/// How many firings began, and what came of those whose outcome is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub begun: i64,
    pub accepted: i64,
    pub refused: i64,
}

impl Counts {
    pub(super) fn of(submission: Submission) -> Self {
        match submission {
            Submission::Accepted => Self { accepted: 1, ..Self::default() },
            Submission::Refused => Self { refused: 1, ..Self::default() },
        }
    }
}

/// Adds to the counts of the minute in which a firing began.
pub(super) fn add(
    tx: &mut Tx<'_>,
    workspace: &str,
    firing: &str,
    began: Timestamp,
    counts: Counts,
) -> Result<(), Error> {
    let shard = i64::from(firing.bytes().last().unwrap_or(0)) % SHARDS;
    tx.execute(
        "INSERT INTO schedule_minutes (workspace_id, minute, shard, begun, succeeded, failed)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (workspace_id, minute, shard) DO UPDATE SET
             begun = schedule_minutes.begun + excluded.begun,
             succeeded = schedule_minutes.succeeded + excluded.succeeded,
             failed = schedule_minutes.failed + excluded.failed",
        params![
            workspace,
            began.ms() - began.ms().rem_euclid(MINUTE_MS),
            shard,
            counts.begun,
            counts.accepted,
            counts.refused
        ],
    )?;
    Ok(())
}

/// Returns the counts of the minutes that begin within a window, whose end is exclusive.
pub fn counts(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    since: Timestamp,
    until: Timestamp,
) -> Result<Counts, Error> {
    let row = tx.find(
        TABLE,
        "SELECT CAST(COALESCE(SUM(begun), 0) AS BIGINT), CAST(COALESCE(SUM(succeeded), 0) AS BIGINT),
                CAST(COALESCE(SUM(failed), 0) AS BIGINT)
         FROM schedule_minutes WHERE workspace_id = $1 AND minute >= $2 AND minute < $3",
        params![workspace, since, until],
    )?;
    row.map_or(Ok(Counts::default()), |row| {
        Ok(Counts { begun: row.int(0)?, accepted: row.int(1)?, refused: row.int(2)? })
    })
}

/// Deletes counts of minutes before a time.
pub fn trim(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM schedule_minutes WHERE (workspace_id, minute, shard) IN (
             SELECT workspace_id, minute, shard FROM schedule_minutes WHERE minute < $1 LIMIT $2)",
        params![before, limit],
    )
}
