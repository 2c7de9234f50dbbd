//! Executions of jobs, and calls to workloads that nobody waits for: the rows of the durable queue.
//!
//! To change a task or the counts of an execution, hold the execution's row ([`lock`]), so that
//! tasks and counts always agree. The crate `jobs` decides what a change means; here it is only
//! stored.

pub mod claims;
pub mod holders;
pub mod images;
mod list;
pub mod tasks;

pub use list::{Query, count, list};

use crate::{Error, Row, Tx, params};
use types::ids::{ExecutionId, ResourceId, WorkspaceId};
use types::{KindName, Timestamp};

const TABLE: &str = "executions";

/// The progress of an execution, apart from its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Open,
    /// No more tasks start; running ones go on to their end.
    Cancelling,
    Succeeded,
    Failed,
    Cancelled,
}

impl Phase {
    const ALL: [Self; 5] =
        [Self::Open, Self::Cancelling, Self::Succeeded, Self::Failed, Self::Cancelled];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Cancelling => "cancelling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// The kind of machine slots that an execution takes. Calls wait for their workloads, perhaps for
/// minutes, while tasks run here; neither waits for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    Task,
    Call,
}

/// One execution of a job, or one call to a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    pub id: ExecutionId,
    pub workspace: WorkspaceId,
    /// Kind of what is executed: a job, or the workload that is called.
    pub kind: KindName,
    pub job_id: ResourceId,
    pub job: String,
    /// The machine that has to run it; any, if it is `None`.
    pub machine: Option<String>,
    /// Public name, unique within the job.
    pub name: String,
    pub phase: Phase,
    pub total: i64,
    /// Index of the first task that was never claimed. Only tasks before it have rows.
    pub next: i64,
    /// Most tasks that may run at once.
    pub parallelism: i64,
    /// Memory of each task.
    pub memory_mb: i64,
    /// Most retries of each task.
    pub retries_max: i64,
    pub counts: Counts,
    /// Time from which a task can be claimed, if any can.
    pub ready_at: Option<Timestamp>,
    /// Order in which executions of a workspace take turns; the lowest is next.
    pub turn: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// Tasks of an execution, counted by state. Tasks that were never claimed are not counted until
/// they are cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub running: i64,
    /// Tasks that wait for another attempt.
    pub waiting: i64,
    pub succeeded: i64,
    pub failed: i64,
    pub cancelled: i64,
    /// Attempts beyond the first one of a task.
    pub retried: i64,
}

/// The parts of an execution that only those who run its tasks need.
#[derive(Clone)]
pub struct Order {
    /// Plan, sealed in the context of [`context`].
    pub plan: String,
    /// Arguments of all tasks: one JSON object per line.
    pub arguments: String,
}

impl Execution {
    pub fn slot_kind(&self) -> SlotKind {
        match self.kind {
            KindName::Job => SlotKind::Task,
            _ => SlotKind::Call,
        }
    }
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, workspace_id, job_id, job, name, phase, total, next, parallelism, memory_mb,
             running, waiting, succeeded, failed, cancelled, retried, ready_at, turn,
             created_at, updated_at, started_at, ended_at, retries_max, kind, machine FROM executions ",
            $rest
        )
    };
}
use select;

/// Returns the context to which the sealed plan is bound, so that it cannot be moved to another
/// execution.
pub fn context(id: &ExecutionId) -> String {
    format!("executions/{id}")
}

/// Inserts an execution. Returns [`Error::Duplicate`] if the job has one of this name.
pub fn insert(tx: &mut Tx<'_>, execution: &Execution, order: &Order) -> Result<(), Error> {
    let Execution { id, workspace, job_id, total, next, parallelism, memory_mb, turn, .. } =
        execution;
    let Counts { running, waiting, succeeded, failed, cancelled, retried } = execution.counts;
    tx.execute(
        "INSERT INTO executions (id, workspace_id, job_id, job, name, phase, total, next, parallelism, memory_mb,
             running, waiting, succeeded, failed, cancelled, retried, ready_at, turn, created_at, updated_at, retries_max,
             kind, machine)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)",
        params![
            id,
            workspace,
            job_id,
            execution.job.as_str(),
            execution.name.as_str(),
            execution.phase.name(),
            *total,
            *next,
            *parallelism,
            *memory_mb,
            running,
            waiting,
            succeeded,
            failed,
            cancelled,
            retried,
            execution.ready_at,
            *turn,
            execution.created_at,
            execution.updated_at,
            execution.retries_max,
            execution.kind.name(),
            execution.machine.as_deref()
        ],
    )?;
    let sql = "INSERT INTO execution_orders (execution_id, plan, arguments) VALUES ($1, $2, $3)";
    tx.execute(sql, params![id, order.plan.as_str(), order.arguments.as_str()])?;
    Ok(())
}

pub fn find(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    job: &str,
    name: &str,
) -> Result<Option<Execution>, Error> {
    let sql = select!("WHERE workspace_id = $1 AND job = $2 AND name = $3");
    tx.find(TABLE, sql, params![workspace, job, name])?.as_ref().map(read).transpose()
}

pub fn find_by_id(tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<Execution>, Error> {
    tx.find(TABLE, select!("WHERE id = $1"), params![id])?.as_ref().map(read).transpose()
}

/// Returns the execution, and locks it and its tasks until the transaction ends. To lock several,
/// do so in the order of their ids.
pub fn lock(tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<Execution>, Error> {
    let sql = tx.locking(select!("WHERE id = $1"));
    tx.find(TABLE, &sql, params![id])?.as_ref().map(read).transpose()
}

/// Locks an execution like [`lock`], but returns `None` while another transaction holds it.
pub fn lock_if_free(tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<Execution>, Error> {
    let sql = tx.locking_free(select!("WHERE id = $1"));
    tx.find(TABLE, &sql, params![id])?.as_ref().map(read).transpose()
}

/// Stores the changed parts of an execution that this transaction has locked.
pub fn put(tx: &mut Tx<'_>, execution: &Execution) -> Result<(), Error> {
    let Counts { running, waiting, succeeded, failed, cancelled, retried } = execution.counts;
    let done = tx.execute(
        "UPDATE executions SET phase = $2, next = $3, running = $4, waiting = $5, succeeded = $6, failed = $7,
             cancelled = $8, retried = $9, ready_at = $10, turn = $11, updated_at = $12, started_at = $13,
             ended_at = $14 WHERE id = $1",
        params![
            &execution.id,
            execution.phase.name(),
            execution.next,
            running,
            waiting,
            succeeded,
            failed,
            cancelled,
            retried,
            execution.ready_at,
            execution.turn,
            execution.updated_at,
            execution.started_at,
            execution.ended_at
        ],
    )?;
    match done {
        1 => Ok(()),
        _ => Err(Error::Stale { what: format!("the execution {}", execution.id) }),
    }
}

/// Returns the parts that those who run its tasks need.
pub fn order(tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<Order>, Error> {
    let sql = "SELECT plan, arguments FROM execution_orders WHERE execution_id = $1";
    let row = tx.find("execution_orders", sql, params![id])?;
    row.map(|mut row| Ok(Order { plan: row.take_text(0)?, arguments: row.take_text(1)? }))
        .transpose()
}

/// Returns the sealed plan of an execution.
pub fn plan(tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<String>, Error> {
    let sql = "SELECT plan FROM execution_orders WHERE execution_id = $1";
    tx.find("execution_orders", sql, params![id])?.map(|mut row| row.take_text(0)).transpose()
}

/// Lists the executions of a job, or the calls to a workload, that have not ended, ordered by id.
pub fn open_of(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    name: &str,
) -> Result<Vec<ExecutionId>, Error> {
    let sql = "SELECT id FROM executions WHERE workspace_id = $1 AND kind = $2 AND job = $3 AND ended_at IS NULL
               ORDER BY id";
    let rows = tx.query(TABLE, sql, params![workspace, kind.name(), name])?;
    rows.iter().map(|row| row.text(0).map(ExecutionId::known)).collect()
}

/// Keeps a workload's answer to a call until it has been delivered.
pub fn put_answer(tx: &mut Tx<'_>, id: &ExecutionId, answer: &str) -> Result<(), Error> {
    let sql = "UPDATE executions SET answer = $2 WHERE id = $1";
    tx.execute(sql, params![id, answer]).map(drop)
}

/// Returns the workload's latest answer to a call, if there is one.
pub fn answer(tx: &mut Tx<'_>, id: &ExecutionId) -> Result<Option<String>, Error> {
    let sql = "SELECT answer FROM executions WHERE id = $1";
    tx.find(TABLE, sql, params![id])?.map_or(Ok(None), |row| row.opt_text(0))
}

/// Counts the executions of a workspace that have not ended, up to `most`, for somebody who adds one
/// if there are fewer.
pub fn count_open(tx: &mut Tx<'_>, workspace: &WorkspaceId, most: i64) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM
        (SELECT 1 FROM executions WHERE workspace_id = $1 AND ended_at IS NULL LIMIT $2) AS open";
    tx.count_towards(&format!("{workspace}/executions"), most, |tx| {
        tx.find(TABLE, sql, params![workspace, most])?.map_or(Ok(0), |row| row.int(0))
    })
}

/// Deletes executions that ended before a time, oldest first. Each call deletes up to `limit` rows
/// of one execution, which may have very many tasks. Returns the number of deleted rows.
pub fn trim(tx: &mut Tx<'_>, ended_before: Timestamp, limit: i64) -> Result<u64, Error> {
    let oldest = "SELECT id FROM executions WHERE ended_at < $1 ORDER BY ended_at, id LIMIT 1";
    let Some(row) = tx.find(TABLE, oldest, params![ended_before])? else { return Ok(0) };
    let id = ExecutionId::known(row.text(0)?);
    let tasks = tasks::delete(tx, &id, limit)?;
    if i64::try_from(tasks).is_ok_and(|tasks| tasks >= limit) {
        return Ok(tasks);
    }
    Ok(tasks + tx.execute("DELETE FROM executions WHERE id = $1", params![&id])?)
}

/// Deletes up to `limit` tasks and executions of a workspace. Those who run the tasks will notice.
pub(crate) fn delete_of_workspace(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    limit: i64,
) -> Result<u64, Error> {
    let any = tx.locking("SELECT id FROM executions WHERE workspace_id = $1 LIMIT 1").into_owned();
    let (mut deleted, limit) = (0, limit.unsigned_abs());
    while deleted < limit
        && let Some(row) = tx.find(TABLE, &any, params![workspace])?
    {
        let id = ExecutionId::known(row.text(0)?);
        let room = i64::try_from(limit - deleted).unwrap_or(i64::MAX);
        deleted += tasks::delete(tx, &id, room)?;
        if deleted < limit {
            deleted += tx.execute("DELETE FROM executions WHERE id = $1", params![&id])?;
        }
    }
    Ok(deleted)
}

fn read(row: &Row) -> Result<Execution, Error> {
    let id = row.text(0)?;
    let phase = row.text(5)?;
    let phase = Phase::ALL.into_iter().find(|known| known.name() == phase);
    let phase = phase.ok_or_else(|| Error::corrupt(TABLE, id.as_str(), "its phase is unknown"))?;
    let kind = KindName::parse(&row.text(23)?);
    let kind = kind.ok_or_else(|| Error::corrupt(TABLE, id.as_str(), "its kind is unknown"))?;
    Ok(Execution {
        kind,
        id: ExecutionId::known(id),
        workspace: WorkspaceId::known(row.text(1)?),
        job_id: ResourceId::known(row.text(2)?),
        job: row.text(3)?,
        machine: row.opt_text(24)?,
        name: row.text(4)?,
        phase,
        total: row.int(6)?,
        next: row.int(7)?,
        parallelism: row.int(8)?,
        memory_mb: row.int(9)?,
        retries_max: row.int(22)?,
        counts: Counts {
            running: row.int(10)?,
            waiting: row.int(11)?,
            succeeded: row.int(12)?,
            failed: row.int(13)?,
            cancelled: row.int(14)?,
            retried: row.int(15)?,
        },
        ready_at: row.opt_time(16)?,
        turn: row.int(17)?,
        created_at: row.time(18)?,
        updated_at: row.time(19)?,
        started_at: row.opt_time(20)?,
        ended_at: row.opt_time(21)?,
    })
}
