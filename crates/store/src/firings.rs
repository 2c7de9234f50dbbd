//! Firings of sandbox schedules, and their outcomes.

mod list;
mod minutes;

pub use list::{Of, Query, TOTAL_MAX, count, list};
pub use minutes::{Counts, counts, trim};

use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};

const TABLE: &str = "schedule_firings";

/// One firing of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    pub id: String,
    /// Name of the sandbox.
    pub sandbox: String,
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

/// Whether a sandbox took the command of a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submission {
    Accepted,
    Refused,
}

/// The statuses of a sandbox that took the command.
const ACCEPTED: std::ops::RangeInclusive<i64> = 200..=399;

impl Outcome {
    pub fn submission(&self) -> Submission {
        match ACCEPTED.contains(&self.status_code) {
            true => Submission::Accepted,
            false => Submission::Refused,
        }
    }
}

/// Records that a schedule is being fired, and deletes its oldest firings beyond `keep`.
pub fn begin(
    tx: &mut Tx<'_>,
    (workspace, sandbox): (&WorkspaceId, &ResourceId),
    server: &str,
    firing: &Firing,
    keep: i64,
) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO schedule_firings (id, workspace_id, sandbox_id, schedule, server, created_at, timeout_s)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        params![
            firing.id.as_str(),
            workspace,
            sandbox,
            firing.schedule.as_str(),
            server,
            firing.created_at,
            firing.timeout_s
        ],
    )?;
    let begun = Counts { begun: 1, ..Counts::default() };
    minutes::add(tx, workspace.as_str(), &firing.id, firing.created_at, begun)?;
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
    let open = tx.find(
        TABLE,
        "SELECT workspace_id, created_at FROM schedule_firings WHERE id = $1 AND executed_at IS NULL",
        params![id],
    )?;
    let Some(open) = open else { return Ok(()) };
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
    let ended = Counts::of(outcome.submission());
    minutes::add(tx, &open.text(0)?, id, open.time(1)?, ended)
}

/// Closes firings that a server left open when it was stopped.
pub fn close(tx: &mut Tx<'_>, server: &str, now: Timestamp, error: &str) -> Result<(), Error> {
    let open = tx.query(
        TABLE,
        "SELECT id FROM schedule_firings WHERE server = $1 AND executed_at IS NULL",
        params![server],
    )?;
    let outcome = Outcome {
        executed_at: now,
        process_name: None,
        status_code: 0,
        error: Some(error.to_owned()),
    };
    open.iter().try_for_each(|row| end(tx, &row.text(0)?, &outcome))
}
