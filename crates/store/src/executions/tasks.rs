//! Tasks of an execution. A task has a row from its first claim on.
//!
//! Functions here that write must be called while holding the row of the execution.

use crate::{Error, Row, Tx, Value, params};
use std::collections::BTreeSet;
use types::Timestamp;
use types::ids::ExecutionId;

const TABLE: &str = "tasks";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Waits for another attempt, which may not start before this time.
    Waiting(Timestamp),
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Waiting(_) => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    const fn not_before(self) -> Option<Timestamp> {
        match self {
            Self::Waiting(time) => Some(time),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    pub execution: ExecutionId,
    /// Index of the task, from 0.
    pub index: i64,
    pub state: State,
    /// Number of the newest attempt, from 1. `holder` has it or had it.
    pub attempt: i64,
    pub holder: String,
    /// Attempts that failed. `losses` counts attempts that were lost through no fault of the task.
    pub failures: i64,
    pub losses: i64,
    pub claimed_at: Timestamp,
    /// Start of the newest attempt.
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Why the latest finished attempt did not succeed.
    pub failure: Option<Failure>,
}

/// Why an attempt did not succeed, in the terms of the crate `jobs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub name: String,
    /// An exit code or a signal number.
    pub code: Option<i64>,
    pub text: Option<String>,
}

const COLUMNS: &str =
    "execution_id, task, state, attempt, holder, failures, losses, not_before, claimed_at, started_at,
    ended_at, failure, failure_code, failure_text";

/// Lists tasks from an index on, in order. Tasks that were never claimed have no row.
pub fn page(
    tx: &mut Tx<'_>,
    execution: &ExecutionId,
    from: i64,
    limit: i64,
) -> Result<Vec<Task>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM tasks WHERE execution_id = $1 AND task >= $2 ORDER BY task LIMIT $3"
    );
    tx.query(TABLE, &sql, params![execution, from, limit])?.iter().map(read).collect()
}

/// Claims `count` tasks from index `first` on, which were never claimed before.
pub fn claim_fresh(
    tx: &mut Tx<'_>,
    execution: &ExecutionId,
    first: i64,
    count: i64,
    holder: &str,
    now: Timestamp,
) -> Result<(), Error> {
    if count <= 0 {
        return Ok(());
    }
    tx.execute(
        "INSERT INTO tasks (execution_id, task, state, attempt, holder, failures, losses, claimed_at)
         WITH RECURSIVE fresh (task) AS (
             SELECT CAST($2 AS BIGINT) UNION ALL SELECT task + 1 FROM fresh WHERE task + 1 < CAST($3 AS BIGINT))
         SELECT CAST($1 AS TEXT), task, 'running', 1, CAST($4 AS TEXT), 0, 0, CAST($5 AS BIGINT) FROM fresh",
        params![execution, first, first + count, holder, now],
    )?;
    Ok(())
}

/// Lists tasks that may be tried again by now, the longest overdue first.
pub fn due(
    tx: &mut Tx<'_>,
    execution: &ExecutionId,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Task>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM tasks WHERE execution_id = $1 AND state = 'pending' AND not_before <= $2
         ORDER BY not_before, task LIMIT $3"
    );
    tx.query(TABLE, &sql, params![execution, now, limit])?.iter().map(read).collect()
}

/// Claims a task that [`due`] found, for its next attempt.
pub fn claim_again(
    tx: &mut Tx<'_>,
    task: &Task,
    holder: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let done = tx.execute(
        "UPDATE tasks SET state = 'running', attempt = attempt + 1, holder = $4, not_before = NULL, claimed_at = $5,
             started_at = NULL, ended_at = NULL
         WHERE execution_id = $1 AND task = $2 AND attempt = $3 AND state = 'pending'",
        params![&task.execution, task.index, task.attempt, holder, now],
    )?;
    match done {
        1 => Ok(()),
        _ => Err(Error::Stale {
            what: format!("task {} of the execution {}", task.index, task.execution),
        }),
    }
}

/// Numbers of rows that one statement records. Only a few sizes, so that statements stay prepared.
const RECORDED_AT_ONCE: [usize; 3] = [64, 8, 1];

/// Accepts the outcome of attempts, each once and only from its holder. `ended` has the tasks in
/// their new state. Returns index and attempt of those that were accepted.
pub fn record(tx: &mut Tx<'_>, ended: &[Task]) -> Result<BTreeSet<(i64, i64)>, Error> {
    let mut accepted = BTreeSet::new();
    let mut left = ended;
    while !left.is_empty() {
        let size = RECORDED_AT_ONCE.into_iter().find(|size| *size <= left.len()).unwrap_or(1);
        let (now, later) = left.split_at(size);
        left = later;
        let params: Vec<Value> = now.iter().flat_map(recorded).collect();
        for row in tx.query(TABLE, &recording(size), &params)? {
            accepted.insert((row.int(0)?, row.int(1)?));
        }
    }
    Ok(accepted)
}

/// Columns that a statement of [`recording`] sets for each task, with their types.
const RECORDED: [(&str, &str); 13] = [
    ("execution_id", "TEXT"),
    ("task", "BIGINT"),
    ("attempt", "BIGINT"),
    ("holder", "TEXT"),
    ("state", "TEXT"),
    ("failures", "BIGINT"),
    ("losses", "BIGINT"),
    ("not_before", "BIGINT"),
    ("started_at", "BIGINT"),
    ("ended_at", "BIGINT"),
    ("failure", "TEXT"),
    ("failure_code", "BIGINT"),
    ("failure_text", "TEXT"),
];

fn recorded(task: &Task) -> [Value; RECORDED.len()] {
    let failure = task.failure.as_ref();
    [
        (&task.execution).into(),
        task.index.into(),
        task.attempt.into(),
        task.holder.as_str().into(),
        task.state.name().into(),
        task.failures.into(),
        task.losses.into(),
        task.state.not_before().into(),
        task.started_at.into(),
        task.ended_at.into(),
        failure.map(|failure| failure.name.as_str()).into(),
        failure.and_then(|failure| failure.code).into(),
        failure.and_then(|failure| failure.text.as_deref()).into(),
    ]
}

/// Returns the statement that records `size` tasks. PostgreSQL must be told the types of bare
/// values. SQLite must find each task by its whole primary key: with the execution as a constant it
/// would read all tasks of the execution, and with a bare holder all of the holder's.
fn recording(size: usize) -> String {
    let mut number = 0;
    let mut cell = |sort: &str| {
        number += 1;
        format!("CAST(${number} AS {sort})")
    };
    let mut row = || format!("({})", RECORDED.map(|(_, sort)| cell(sort)).join(", "));
    let rows = (0..size).map(|_| row()).collect::<Vec<_>>().join(", ");
    let names = RECORDED.map(|(name, _)| name).join(", ");
    format!(
        "WITH new ({names}) AS (VALUES {rows})
         UPDATE tasks SET state = new.state, failures = new.failures, losses = new.losses, not_before = new.not_before,
             started_at = new.started_at, ended_at = new.ended_at, failure = new.failure,
             failure_code = new.failure_code, failure_text = new.failure_text
         FROM new WHERE tasks.execution_id = new.execution_id AND tasks.task = new.task AND tasks.attempt = new.attempt
             AND tasks.holder || '' = new.holder AND tasks.state = 'running'
         RETURNING tasks.task, tasks.attempt"
    )
}

/// Cancels all tasks that wait for another attempt.
pub fn cancel_waiting(
    tx: &mut Tx<'_>,
    execution: &ExecutionId,
    now: Timestamp,
) -> Result<u64, Error> {
    let sql = "UPDATE tasks SET state = 'cancelled', not_before = NULL, ended_at = $2
               WHERE execution_id = $1 AND state = 'pending'";
    tx.execute(sql, params![execution, now])
}

/// Returns when the first waiting task may be tried again.
pub fn earliest(tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<Option<Timestamp>, Error> {
    let sql = "SELECT MIN(not_before) FROM tasks WHERE execution_id = $1 AND state = 'pending'";
    tx.find(TABLE, sql, params![execution])?.map_or(Ok(None), |row| row.opt_time(0))
}

/// Lists running tasks of a holder, ordered by execution.
pub fn held(tx: &mut Tx<'_>, holder: &str, limit: i64) -> Result<Vec<Task>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM tasks WHERE holder = $1 AND state = 'running' ORDER BY execution_id, task LIMIT $2"
    );
    tx.query(TABLE, &sql, params![holder, limit])?.iter().map(read).collect()
}

/// Deletes up to `limit` tasks of an execution.
pub(super) fn delete(tx: &mut Tx<'_>, execution: &ExecutionId, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM tasks WHERE execution_id = $1
         AND task IN (SELECT task FROM tasks WHERE execution_id = $1 ORDER BY task LIMIT $2)",
        params![execution, limit],
    )
}

fn read(row: &Row) -> Result<Task, Error> {
    let execution = row.text(0)?;
    let not_before = row.opt_time(7)?;
    let state = match (row.text(2)?.as_str(), not_before) {
        ("pending", Some(time)) => State::Waiting(time),
        ("running", None) => State::Running,
        ("succeeded", None) => State::Succeeded,
        ("failed", None) => State::Failed,
        ("cancelled", None) => State::Cancelled,
        _ => return Err(Error::corrupt(TABLE, execution, "its state is impossible")),
    };
    let (code, text) = (row.opt_int(12)?, row.opt_text(13)?);
    Ok(Task {
        execution: ExecutionId::known(execution),
        index: row.int(1)?,
        state,
        attempt: row.int(3)?,
        holder: row.text(4)?,
        failures: row.int(5)?,
        losses: row.int(6)?,
        claimed_at: row.time(8)?,
        started_at: row.opt_time(9)?,
        ended_at: row.opt_time(10)?,
        failure: row.opt_text(11)?.map(|name| Failure { name, code, text }),
    })
}
