//! When repositories are polled, and which webhook deliveries were accepted.

use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::WorkspaceId;

const TABLE: &str = "runner_repositories";

/// A repository for which a workspace has runners.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Repository {
    pub workspace: WorkspaceId,
    /// Name as `owner/repo`, in lower case.
    pub name: String,
}

/// Starts polling a repository at `due_at`, unless it is polled already. Returns whether it is new.
pub fn poll_too(
    tx: &mut Tx<'_>,
    repository: &Repository,
    due_at: Timestamp,
) -> Result<bool, Error> {
    let added = tx.execute(
        "INSERT INTO runner_repositories (workspace_id, repository, due_at) VALUES ($1, $2, $3)
         ON CONFLICT (workspace_id, repository) DO NOTHING",
        params![&repository.workspace, repository.name.as_str(), due_at],
    )?;
    Ok(added == 1)
}

/// Makes a repository due for polling at once, because something looks wrong.
pub fn poll_now(tx: &mut Tx<'_>, repository: &Repository, now: Timestamp) -> Result<(), Error> {
    let sql = "UPDATE runner_repositories SET due_at = $3 WHERE workspace_id = $1 AND repository = $2 AND due_at > $3";
    tx.execute(sql, params![&repository.workspace, repository.name.as_str(), now])?;
    Ok(())
}

pub fn drop_poll(tx: &mut Tx<'_>, repository: &Repository) -> Result<(), Error> {
    let sql = "DELETE FROM runner_repositories WHERE workspace_id = $1 AND repository = $2";
    tx.execute(sql, params![&repository.workspace, repository.name.as_str()])?;
    Ok(())
}

pub fn repositories(tx: &mut Tx<'_>) -> Result<Vec<Repository>, Error> {
    let sql = "SELECT workspace_id, repository FROM runner_repositories ORDER BY workspace_id, repository";
    tx.query(TABLE, sql, params![])?.iter().map(read).collect()
}

/// Lists repositories that are due, taking turns between workspaces, the longest overdue of each
/// first.
pub fn due_polls(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Repository>, Error> {
    let sql = "SELECT workspace_id, repository FROM (
                   SELECT workspace_id, repository, due_at,
                       ROW_NUMBER() OVER (PARTITION BY workspace_id ORDER BY due_at, repository) AS turn
                   FROM runner_repositories WHERE due_at <= $1) AS turns
               ORDER BY turn, due_at LIMIT $2";
    tx.query(TABLE, sql, params![now, limit])?.iter().map(read).collect()
}

/// Returns true for the one server that is to poll the repository now.
pub fn claim_poll(
    tx: &mut Tx<'_>,
    repository: &Repository,
    now: Timestamp,
    next: Timestamp,
) -> Result<bool, Error> {
    let sql = "UPDATE runner_repositories SET due_at = $4 WHERE workspace_id = $1 AND repository = $2 AND due_at <= $3";
    Ok(tx.execute(sql, params![&repository.workspace, repository.name.as_str(), now, next])? == 1)
}

/// Records a webhook delivery, and returns true if it is new.
pub fn note_delivery(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    delivery: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    let added = tx.execute(
        "INSERT INTO webhook_deliveries (workspace_id, delivery, at) VALUES ($1, $2, $3)
         ON CONFLICT (workspace_id, delivery) DO NOTHING",
        params![workspace, delivery, now],
    )?;
    Ok(added == 1)
}

/// Deletes deliveries that were accepted before a time.
pub fn trim_deliveries(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    tx.execute(
        "DELETE FROM webhook_deliveries WHERE (workspace_id, delivery) IN (
             SELECT workspace_id, delivery FROM webhook_deliveries WHERE at < $1 LIMIT $2)",
        params![before, limit],
    )
}

fn read(row: &Row) -> Result<Repository, Error> {
    Ok(Repository { workspace: WorkspaceId::known(row.text(0)?), name: row.text(1)? })
}
