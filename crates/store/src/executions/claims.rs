//! Executions with claimable tasks, and the number of slots in use on all machines.

use super::{SlotKind, images};
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
    /// Most further tasks that may run.
    pub room: i64,
}

/// The machine that claims.
#[derive(Debug, Clone, Copy)]
pub struct Claimer<'m> {
    pub name: &'m str,
    /// What was started before this time waits no longer for the machine that it needs, if that has
    /// no lease, and nothing waits for the image of a machine that was last up before this time.
    pub abandoned: Timestamp,
    /// All memory that it has for tasks. Larger ones would stand in the way of all others.
    pub memory_mb: i64,
}

/// Returns the SQL condition that corresponds to [`super::Execution::slot_kind`].
const fn condition(slots: SlotKind) -> &'static str {
    match slots {
        SlotKind::Task => "kind = 'job'",
        SlotKind::Call => "kind <> 'job'",
    }
}

/// The SQL condition that a machine may claim tasks of an execution, with its parameters. What only
/// one machine can run is left to it while it has a lease, and for a while afterwards. Then
/// whoever takes it finds out that it cannot be run here, so that it ends. It is the same with what
/// others may have the image of, also others that were up not long ago.
fn claimable([name, abandoned, memory_mb]: [&str; 3]) -> String {
    let (is_missing, elsewhere) =
        (images::is_missing_at(name), images::is_elsewhere(name, abandoned));
    format!(
        "memory_mb <= {memory_mb} AND (machine IS NULL OR machine = {name} OR (created_at < {abandoned}
             AND NOT EXISTS (SELECT 1 FROM holders WHERE holders.name = executions.machine)))
         AND NOT ({is_missing} AND {elsewhere})"
    )
}

/// Returns the next executions of each workspace that take such slots of a machine, in turn order,
/// and at most `of_each` per workspace.
pub fn candidates(
    tx: &mut Tx<'_>,
    (slots, claimer): (SlotKind, Claimer<'_>),
    now: Timestamp,
    of_each: i64,
) -> Result<Vec<Candidate>, Error> {
    let sql = format!(
        "SELECT id, workspace_id, memory_mb,
             CASE WHEN parallelism - running < total - next + waiting
                 THEN parallelism - running ELSE total - next + waiting END
         FROM (SELECT id, workspace_id, memory_mb, parallelism, running, total, next, waiting, turn,
                   ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY turn, id) AS place
               FROM executions WHERE ready_at <= $1 AND {} AND {}) AS ranked
         WHERE place <= $2 ORDER BY workspace_id, place",
        claimable(["$3", "$4", "$5"]),
        condition(slots)
    );
    let values = params![now, of_each, claimer.name, claimer.abandoned, claimer.memory_mb];
    let rows = tx.query(TABLE, &sql, values)?;
    let candidate = |row: &crate::Row| {
        let (id, workspace) = (ExecutionId::known(row.text(0)?), WorkspaceId::known(row.text(1)?));
        Ok(Candidate { id, workspace, memory_mb: row.int(2)?, room: row.int(3)? })
    };
    rows.iter().map(candidate).collect()
}

/// Returns how many such slots each workspace uses now, on all machines.
pub fn running(tx: &mut Tx<'_>, slots: SlotKind) -> Result<Vec<(WorkspaceId, i64)>, Error> {
    let sql = format!(
        "SELECT workspace_id, CAST(SUM(running) AS BIGINT) FROM executions
         WHERE running > 0 AND {} GROUP BY workspace_id",
        condition(slots)
    );
    tx.query(TABLE, &sql, params![])?
        .iter()
        .map(|row| Ok((WorkspaceId::known(row.text(0)?), row.int(1)?)))
        .collect()
}

/// Returns when a machine can claim the next task, if any: one that takes such slots, or any.
pub fn next_ready(
    tx: &mut Tx<'_>,
    (slots, claimer): (Option<SlotKind>, Claimer<'_>),
) -> Result<Option<Timestamp>, Error> {
    let and = slots.map_or(String::new(), |slots| format!("AND {}", condition(slots)));
    let sql = format!(
        "SELECT ready_at FROM executions
         WHERE ready_at IS NOT NULL AND {} {and}
         ORDER BY ready_at LIMIT 1",
        claimable(["$1", "$2", "$3"])
    );
    tx.find(TABLE, &sql, params![claimer.name, claimer.abandoned, claimer.memory_mb])?
        .map_or(Ok(None), |row| row.opt_time(0))
}

/// Returns how many tasks, of one workspace or of all, are running or would run if there were room
/// for all. Calls are not counted, since they have slots of their own.
pub fn wanted(tx: &mut Tx<'_>, workspace: Option<&WorkspaceId>) -> Result<i64, Error> {
    let sql = "SELECT CAST(COALESCE(SUM(CASE
                   WHEN phase = 'cancelling' THEN running
                   WHEN parallelism < total - next + waiting + running THEN parallelism
                   ELSE total - next + waiting + running END), 0) AS BIGINT)
               FROM executions WHERE ended_at IS NULL AND kind = 'job'
                   AND (CAST($1 AS TEXT) IS NULL OR workspace_id = CAST($1 AS TEXT))";
    tx.find(TABLE, sql, params![workspace.map(WorkspaceId::as_str)])?
        .map_or(Ok(0), |row| row.int(0))
}
