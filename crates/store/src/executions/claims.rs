//! What there is to claim, and how much of all machines is taken.

use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::{ExecutionId, WorkspaceId};

const TABLE: &str = "executions";

/// An execution with tasks that may be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: ExecutionId,
    pub workspace: WorkspaceId,
    pub memory_mb: i64,
    /// How many more tasks may run, at most.
    pub room: i64,
}

/// The next executions of each workspace, at most so many of each, in their turns.
pub fn candidates(tx: &mut Tx<'_>, now: Timestamp, of_each: i64) -> Result<Vec<Candidate>, Error> {
    let rows = tx.query(
        TABLE,
        "SELECT id, workspace_id, memory_mb,
             CASE WHEN parallelism - running < total - next + waiting
                 THEN parallelism - running ELSE total - next + waiting END
         FROM (SELECT id, workspace_id, memory_mb, parallelism, running, total, next, waiting, turn,
                   ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY turn, id) AS place
               FROM executions WHERE ready_at <= $1) AS ranked
         WHERE place <= $2 ORDER BY workspace_id, place",
        params![now, of_each],
    )?;
    let candidate = |row: &crate::Row| {
        let (id, workspace) = (ExecutionId::known(row.text(0)?), WorkspaceId::known(row.text(1)?));
        Ok(Candidate { id, workspace, memory_mb: row.int(2)?, room: row.int(3)? })
    };
    rows.iter().map(candidate).collect()
}

/// How many tasks of each workspace run now.
pub fn running(tx: &mut Tx<'_>) -> Result<Vec<(WorkspaceId, i64)>, Error> {
    let sql = "SELECT workspace_id, CAST(SUM(running) AS BIGINT) FROM executions WHERE running > 0 GROUP BY workspace_id";
    tx.query(TABLE, sql, params![])?
        .iter()
        .map(|row| Ok((WorkspaceId::known(row.text(0)?), row.int(1)?)))
        .collect()
}

/// When the next task can be claimed, if any ever can.
pub fn next_ready(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Error> {
    let sql = "SELECT MIN(ready_at) FROM executions WHERE ready_at IS NOT NULL";
    tx.find(TABLE, sql, params![])?.map_or(Ok(None), |row| row.opt_time(0))
}

/// How many tasks run, or would if there were room for all.
pub fn wanted(tx: &mut Tx<'_>) -> Result<i64, Error> {
    let sql = "SELECT CAST(COALESCE(SUM(CASE
                   WHEN phase = 'cancelling' THEN running
                   WHEN parallelism < total - next + waiting + running THEN parallelism
                   ELSE total - next + waiting + running END), 0) AS BIGINT)
               FROM executions WHERE ended_at IS NULL";
    tx.find(TABLE, sql, params![])?.map_or(Ok(0), |row| row.int(0))
}
