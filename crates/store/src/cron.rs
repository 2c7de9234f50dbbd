//! How far the clock has been followed for each cron trigger of a job. To move a mark, hold the
//! lock on the job's row.

use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::ResourceId;

const TABLE: &str = "cron_marks";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    pub trigger: String,
    /// Cron line of the trigger when the mark was made. A different line starts from scratch.
    pub line: String,
    /// Time up to which everything that was due has been handled.
    pub handled_at: Timestamp,
}

pub fn list(tx: &mut Tx<'_>, job: &ResourceId) -> Result<Vec<Mark>, Error> {
    let sql =
        "SELECT trigger_id, line, handled_at FROM cron_marks WHERE job_id = $1 ORDER BY trigger_id";
    let rows = tx.query(TABLE, sql, params![job])?;
    rows.iter()
        .map(|row| Ok(Mark { trigger: row.text(0)?, line: row.text(1)?, handled_at: row.time(2)? }))
        .collect()
}

pub fn put(tx: &mut Tx<'_>, job: &ResourceId, mark: &Mark) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO cron_marks (job_id, trigger_id, line, handled_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (job_id, trigger_id) DO UPDATE SET line = EXCLUDED.line, handled_at = EXCLUDED.handled_at",
        params![job, mark.trigger.as_str(), mark.line.as_str(), mark.handled_at],
    )?;
    Ok(())
}

pub fn remove(tx: &mut Tx<'_>, job: &ResourceId, trigger: &str) -> Result<(), Error> {
    tx.execute(
        "DELETE FROM cron_marks WHERE job_id = $1 AND trigger_id = $2",
        params![job, trigger],
    )?;
    Ok(())
}
