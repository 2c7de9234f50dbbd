//! Firings of sandbox schedules, and their outcomes.

use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::ResourceId;

const TABLE: &str = "schedule_firings";

/// One firing of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    pub id: String,
    pub schedule: String,
    pub created_at: Timestamp,
    pub timeout_s: Option<i64>,
    /// Outcome; `None` as long as it is unknown.
    pub outcome: Option<Outcome>,
}

/// The outcome of a firing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub executed_at: Timestamp,
    pub process_name: Option<String>,
    /// HTTP status with which the sandbox answered; 0 if it was not reached.
    pub status_code: i64,
    pub error: Option<String>,
}

/// Records that a schedule is being fired, and deletes its oldest firings beyond `keep`.
pub fn begin(
    tx: &mut Tx<'_>,
    sandbox: &ResourceId,
    server: &str,
    firing: &Firing,
    keep: i64,
) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO schedule_firings (id, sandbox_id, schedule, server, created_at, timeout_s)
         VALUES ($1, $2, $3, $4, $5, $6)",
        params![
            firing.id.as_str(),
            sandbox,
            firing.schedule.as_str(),
            server,
            firing.created_at,
            firing.timeout_s
        ],
    )?;
    tx.execute(
        "DELETE FROM schedule_firings WHERE sandbox_id = $1 AND schedule = $2 AND id NOT IN (
             SELECT id FROM schedule_firings WHERE sandbox_id = $1 AND schedule = $2
             ORDER BY created_at DESC, id DESC LIMIT $3)",
        params![sandbox, firing.schedule.as_str(), keep],
    )?;
    Ok(())
}

/// Records the outcome of a firing, which may have been deleted by now.
pub fn end(tx: &mut Tx<'_>, id: &str, outcome: &Outcome) -> Result<(), Error> {
    tx.execute(
        "UPDATE schedule_firings SET executed_at = $2, process_name = $3, status_code = $4, error = $5 WHERE id = $1",
        params![
            id,
            outcome.executed_at,
            outcome.process_name.as_deref(),
            outcome.status_code,
            outcome.error.as_deref()
        ],
    )?;
    Ok(())
}

/// Closes firings that a server left open when it was stopped.
pub fn close(tx: &mut Tx<'_>, server: &str, now: Timestamp, error: &str) -> Result<u64, Error> {
    tx.execute(
        "UPDATE schedule_firings SET executed_at = $2, status_code = 0, error = $3
         WHERE server = $1 AND executed_at IS NULL",
        params![server, now, error],
    )
}

/// Lists up to `limit` firings of a sandbox that follow a position, newest first.
pub fn list(
    tx: &mut Tx<'_>,
    sandbox: &ResourceId,
    after: Option<(Timestamp, &str)>,
    limit: i64,
) -> Result<Vec<Firing>, Error> {
    let (time, id) = after.map_or((i64::MAX, ""), |(time, id)| (time.ms(), id));
    let rows = tx.query(
        TABLE,
        "SELECT id, schedule, created_at, timeout_s, executed_at, process_name, status_code, error
         FROM schedule_firings WHERE sandbox_id = $1 AND (created_at < $2 OR (created_at = $2 AND id < $3))
         ORDER BY created_at DESC, id DESC LIMIT $4",
        params![sandbox, time, id, limit],
    )?;
    rows.iter().map(read).collect()
}

pub fn count(tx: &mut Tx<'_>, sandbox: &ResourceId) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM schedule_firings WHERE sandbox_id = $1";
    tx.find(TABLE, sql, params![sandbox])?.map_or(Ok(0), |row| row.int(0))
}

fn read(row: &Row) -> Result<Firing, Error> {
    let outcome = match row.opt_time(4)? {
        None => None,
        Some(executed_at) => Some(Outcome {
            executed_at,
            process_name: row.opt_text(5)?,
            status_code: row.opt_int(6)?.unwrap_or(0),
            error: row.opt_text(7)?,
        }),
    };
    let (id, schedule) = (row.text(0)?, row.text(1)?);
    Ok(Firing { id, schedule, created_at: row.time(2)?, timeout_s: row.opt_int(3)?, outcome })
}
