//! Workflow jobs of a code host, the runners they got, and when to ask about them.
//!
//! What a state means and how it changes is decided elsewhere; here rows are found, locked and
//! written.

mod leaving;
mod polls;

pub use leaving::{Leaving, due_leaving, find_leaving, forget_leaving, leave};
pub use polls::{
    Repository, claim_poll, drop_poll, due_polls, note_delivery, poll_now, poll_too, repositories,
    trim_deliveries,
};

use crate::{Error, Row, Tx, params};
use std::collections::BTreeSet;
use types::Timestamp;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};

const TABLE: &str = "workflow_jobs";

/// A runner that the code host knows and that an execution here runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner {
    pub name: String,
    /// Id at the code host.
    pub id: i64,
    pub execution: ExecutionId,
}

/// The progress of a workflow job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// It has no runner.
    Wanted,
    /// A server is creating the runner with this name.
    Starting {
        name: String,
    },
    /// The runner exists and has not picked the job up.
    Waiting(Runner),
    PickedUp(Runner),
    /// Nothing is left to do for it.
    Done,
    /// Too many runners were started in vain.
    Lost,
}

/// A workflow job that one of our jobs runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowJob {
    pub workspace: WorkspaceId,
    /// Id at the code host.
    pub id: i64,
    pub run_id: i64,
    pub job: ResourceId,
    /// Repository as `owner/repo`, in lower case.
    pub repository: String,
    pub phase: Phase,
    pub since: Timestamp,
    pub attempts: i64,
    pub serial: i64,
    /// Time at which it must be looked at next, if it must.
    pub due_at: Option<Timestamp>,
    pub created_at: Timestamp,
}

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT workspace_id, workflow_job_id, run_id, job_id, repository, state, since, attempts, serial, runner, \
             runner_id, execution_id, due_at, created_at FROM workflow_jobs ",
            $rest
        )
    };
}

/// Adds a workflow job unless it is known. Returns whether it was added.
pub fn insert(tx: &mut Tx<'_>, job: &WorkflowJob) -> Result<bool, Error> {
    let added = tx.execute(
        "INSERT INTO workflow_jobs (workspace_id, workflow_job_id, run_id, job_id, repository, state, since, attempts,
             serial, due_at, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
         ON CONFLICT (workspace_id, workflow_job_id) DO NOTHING",
        params![
            &job.workspace,
            job.id,
            job.run_id,
            &job.job,
            job.repository.as_str(),
            job.phase.name(),
            job.since,
            job.attempts,
            job.serial,
            job.due_at,
            job.created_at
        ],
    )?;
    Ok(added == 1)
}

/// Finds a workflow job, and locks it until the transaction ends.
pub fn lock(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    id: i64,
) -> Result<Option<WorkflowJob>, Error> {
    let sql = tx.locking(select!("WHERE workspace_id = $1 AND workflow_job_id = $2"));
    tx.find(TABLE, &sql, params![workspace, id])?.as_ref().map(read).transpose()
}

/// Finds the workflow job that has the runner with this name, and locks it.
pub fn lock_by_runner(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<WorkflowJob>, Error> {
    let sql = tx.locking(select!("WHERE workspace_id = $1 AND runner = $2"));
    tx.find(TABLE, &sql, params![workspace, name])?.as_ref().map(read).transpose()
}

/// Writes the changeable parts of a locked workflow job.
pub fn put(tx: &mut Tx<'_>, job: &WorkflowJob) -> Result<(), Error> {
    let (name, runner) = match &job.phase {
        Phase::Starting { name } => (Some(name), None),
        Phase::Waiting(runner) | Phase::PickedUp(runner) => (Some(&runner.name), Some(runner)),
        Phase::Wanted | Phase::Done | Phase::Lost => (None, None),
    };
    tx.execute(
        "UPDATE workflow_jobs SET state = $3, since = $4, attempts = $5, serial = $6, runner = $7, runner_id = $8,
             execution_id = $9, due_at = $10
         WHERE workspace_id = $1 AND workflow_job_id = $2",
        params![
            &job.workspace,
            job.id,
            job.phase.name(),
            job.since,
            job.attempts,
            job.serial,
            name.map(String::as_str),
            runner.map(|runner| runner.id),
            runner.map(|runner| &runner.execution),
            job.due_at
        ],
    )?;
    Ok(())
}

/// Lists workflow jobs that must be looked at, taking turns between workspaces, the longest overdue
/// of each first.
pub fn due(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<WorkflowJob>, Error> {
    let sql = select!(
        "JOIN (SELECT workspace_id AS w, workflow_job_id AS i,
                   ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY due_at, workflow_job_id) AS turn
               FROM workflow_jobs WHERE due_at <= $1) turns ON w = workspace_id AND i = workflow_job_id
         ORDER BY turn, due_at LIMIT $2"
    );
    tx.query(TABLE, sql, params![now, limit])?.iter().map(read).collect()
}

/// Counts the runners that a job has or is about to have.
pub fn runners_of(tx: &mut Tx<'_>, job: &ResourceId) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM workflow_jobs
               WHERE job_id = $1 AND due_at IS NOT NULL AND state IN ('starting', 'waiting', 'picked_up')";
    tx.find(TABLE, sql, params![job])?.map_or(Ok(0), |row| row.int(0))
}

/// Postpones all due workflow jobs that still want a runner of this job, because it has as many as
/// it may have.
pub fn postpone_wanted(
    tx: &mut Tx<'_>,
    job: &ResourceId,
    now: Timestamp,
    until: Timestamp,
) -> Result<u64, Error> {
    tx.execute(
        "UPDATE workflow_jobs SET due_at = $3 WHERE job_id = $1 AND state = 'wanted' AND due_at <= $2",
        params![job, now, until],
    )
}

/// Makes the oldest workflow job that waits only for room due now.
pub fn wake_wanted(tx: &mut Tx<'_>, job: &ResourceId, now: Timestamp) -> Result<u64, Error> {
    tx.execute(
        "UPDATE workflow_jobs SET due_at = $2 WHERE job_id = $1 AND workflow_job_id = (
             SELECT workflow_job_id FROM workflow_jobs
             WHERE job_id = $1 AND state = 'wanted' AND attempts = 0 AND due_at IS NOT NULL
             ORDER BY created_at, workflow_job_id LIMIT 1)",
        params![job, now],
    )
}

/// Lists workflow jobs of a repository for which something is left to do, oldest first.
pub fn open(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    repository: &str,
    limit: i64,
) -> Result<Vec<WorkflowJob>, Error> {
    let sql = select!(
        "WHERE workspace_id = $1 AND repository = $2 AND due_at IS NOT NULL ORDER BY created_at, workflow_job_id LIMIT $3"
    );
    tx.query(TABLE, sql, params![workspace, repository, limit])?.iter().map(read).collect()
}

/// Counts the workflow jobs of a workspace for which something is left to do.
pub fn count_open(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<i64, Error> {
    let sql = "SELECT COUNT(*) FROM workflow_jobs WHERE workspace_id = $1 AND due_at IS NOT NULL";
    tx.find(TABLE, sql, params![workspace])?.map_or(Ok(0), |row| row.int(0))
}

/// Returns the names of all runners of a repository that are needed or already being removed.
pub fn names(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    repository: &str,
) -> Result<BTreeSet<String>, Error> {
    let sql = "SELECT runner FROM workflow_jobs WHERE workspace_id = $1 AND repository = $2 AND runner IS NOT NULL
               UNION SELECT name FROM leaving_runners WHERE workspace_id = $1 AND repository = $2";
    tx.query(TABLE, sql, params![workspace, repository])?.iter().map(|row| row.text(0)).collect()
}

/// Deletes workflow jobs that were settled before a time.
pub fn trim(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM workflow_jobs WHERE (workspace_id, workflow_job_id) IN (
             SELECT workspace_id, workflow_job_id FROM workflow_jobs WHERE due_at IS NULL AND since < $1 LIMIT $2)",
        params![before, limit],
    )
}

impl Phase {
    fn name(&self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Starting { .. } => "starting",
            Self::Waiting(_) => "waiting",
            Self::PickedUp(_) => "picked_up",
            Self::Done => "done",
            Self::Lost => "lost",
        }
    }
}

fn read(row: &Row) -> Result<WorkflowJob, Error> {
    Ok(WorkflowJob {
        workspace: WorkspaceId::known(row.text(0)?),
        id: row.int(1)?,
        run_id: row.int(2)?,
        job: ResourceId::known(row.text(3)?),
        repository: row.text(4)?,
        phase: read_phase(row)?,
        since: row.time(6)?,
        attempts: row.int(7)?,
        serial: row.int(8)?,
        due_at: row.opt_time(12)?,
        created_at: row.time(13)?,
    })
}

fn read_phase(row: &Row) -> Result<Phase, Error> {
    let runner = || {
        let execution = ExecutionId::known(row.text(11)?);
        Ok::<_, Error>(Runner { name: row.text(9)?, id: row.int(10)?, execution })
    };
    match row.text(5)?.as_str() {
        "wanted" => Ok(Phase::Wanted),
        "starting" => Ok(Phase::Starting { name: row.text(9)? }),
        "waiting" => runner().map(Phase::Waiting),
        "picked_up" => runner().map(Phase::PickedUp),
        "done" => Ok(Phase::Done),
        "lost" => Ok(Phase::Lost),
        other => {
            Err(Error::corrupt(TABLE, row.int(1)?.to_string(), format!("its state is `{other}`")))
        }
    }
}
