//! Runners that nobody needs any more, until the code host has let go of them.

use super::Runner;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};

const TABLE: &str = "leaving_runners";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    pub workspace: WorkspaceId,
    pub job: ResourceId,
    pub repository: String,
    pub runner: Runner,
    pub tries: i64,
    pub due_at: Timestamp,
}

const COLUMNS: &str =
    "workspace_id, job_id, repository, name, runner_id, execution_id, tries, due_at";

/// Adds a runner, or updates when its removal is tried again.
pub fn leave(tx: &mut Tx<'_>, leaving: &Leaving) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO leaving_runners (workspace_id, job_id, repository, name, runner_id, execution_id, tries, due_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (workspace_id, name) DO UPDATE SET tries = excluded.tries, due_at = excluded.due_at",
        params![
            &leaving.workspace,
            &leaving.job,
            leaving.repository.as_str(),
            leaving.runner.name.as_str(),
            leaving.runner.id,
            &leaving.runner.execution,
            leaving.tries,
            leaving.due_at
        ],
    )?;
    Ok(())
}

/// Finds the runner with this name, and locks it until the transaction ends.
pub fn find_leaving(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<Option<Leaving>, Error> {
    let sql =
        format!("SELECT {COLUMNS} FROM leaving_runners WHERE workspace_id = $1 AND name = $2");
    let sql = tx.locking(&sql);
    tx.find(TABLE, &sql, params![workspace, name])?.as_ref().map(read).transpose()
}

/// Lists runners that are due, taking turns between workspaces, the longest overdue of each first.
pub fn due_leaving(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Leaving>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM (
             SELECT {COLUMNS}, ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY due_at, name) AS turn
             FROM leaving_runners WHERE due_at <= $1) AS turns
         ORDER BY turn, due_at, name LIMIT $2"
    );
    tx.query(TABLE, &sql, params![now, limit])?.iter().map(read).collect()
}

pub fn forget_leaving(tx: &mut Tx<'_>, workspace: &WorkspaceId, name: &str) -> Result<bool, Error> {
    let sql = "DELETE FROM leaving_runners WHERE workspace_id = $1 AND name = $2";
    Ok(tx.execute(sql, params![workspace, name])? == 1)
}

fn read(row: &Row) -> Result<Leaving, Error> {
    let execution = ExecutionId::known(row.text(5)?);
    Ok(Leaving {
        workspace: WorkspaceId::known(row.text(0)?),
        job: ResourceId::known(row.text(1)?),
        repository: row.text(2)?,
        runner: Runner { name: row.text(3)?, id: row.int(4)?, execution },
        tries: row.int(6)?,
        due_at: row.time(7)?,
    })
}
