//! Workspaces, within which names of resources are unique.

use super::announce;
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use types::Timestamp;
use types::ids::{AccountId, UserId, WorkspaceId};
use types::wire::{GroupWorkspaceMapping, WorkspaceHipaaInfo, WorkspaceRuntime, WorkspaceStatus};

#[derive(Debug, Clone)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub account: AccountId,
    pub name: String,
    pub display_name: String,
    pub labels: BTreeMap<String, String>,
    pub settings: Settings,
    pub region: Option<String>,
    pub status: WorkspaceStatus,
    pub version: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub updated_by: String,
}

/// What admins may change apart from names, in its published form.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub runtime: Option<WorkspaceRuntime>,
    pub group_mappings: Option<Vec<GroupWorkspaceMapping>>,
    pub hipaa_info: Option<WorkspaceHipaaInfo>,
}

const COLUMNS: &str = "id, account_id, name, display_name, labels, settings, region, status, version, created_at, \
                       updated_at, created_by, updated_by";

fn read(row: &Row) -> Result<Workspace, Error> {
    let id = row.text(0)?;
    let corrupt = |why: String| Error::corrupt("workspaces", id.as_str(), why);
    Ok(Workspace {
        account: AccountId::known(row.text(1)?),
        name: row.text(2)?,
        display_name: row.text(3)?,
        labels: serde_json::from_str(&row.text(4)?).map_err(|error| corrupt(error.to_string()))?,
        settings: serde_json::from_str(&row.text(5)?)
            .map_err(|error| corrupt(error.to_string()))?,
        region: row.opt_text(6)?,
        status: serde_json::from_str(&row.text(7)?).map_err(|error| corrupt(error.to_string()))?,
        version: row.int(8)?,
        created_at: row.time(9)?,
        updated_at: row.time(10)?,
        created_by: row.text(11)?,
        updated_by: row.text(12)?,
        id: WorkspaceId::known(id),
    })
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(Error::database)
}

/// Inserts a workspace. Returns [`Error::Duplicate`] if the name is taken.
pub fn create(tx: &mut Tx<'_>, workspace: &Workspace) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO workspaces ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
    );
    tx.execute(
        &sql,
        params![
            &workspace.id,
            &workspace.account,
            workspace.name.as_str(),
            workspace.display_name.as_str(),
            json(&workspace.labels)?,
            json(&workspace.settings)?,
            workspace.region.as_deref(),
            json(&workspace.status)?,
            workspace.version,
            workspace.created_at,
            workspace.updated_at,
            workspace.created_by.as_str(),
            workspace.updated_by.as_str()
        ],
    )?;
    announce(
        tx,
        Some(&workspace.id),
        "workspace",
        workspace.id.as_str(),
        Act::Created,
        &workspace.created_by,
    )
}

/// Finds a workspace, also one whose deletion is not complete yet: what it still has is part of it.
pub fn find(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<Option<Workspace>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM workspaces WHERE id = $1");
    tx.find("workspaces", &sql, params![id])?.as_ref().map(read).transpose()
}

/// Finds a workspace that is not deleted.
pub fn find_open(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<Option<Workspace>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM workspaces WHERE id = $1 AND deleted_at IS NULL");
    tx.find("workspaces", &sql, params![id])?.as_ref().map(read).transpose()
}

/// Finds a workspace that is not deleted by its name.
pub fn find_by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Workspace>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM workspaces WHERE name = $1 AND deleted_at IS NULL");
    tx.find("workspaces", &sql, params![name])?.as_ref().map(read).transpose()
}

/// Checks whether a workspace has a name. It keeps the name until its deletion is complete, because
/// addresses of what it still has are made of it.
pub fn is_taken(tx: &mut Tx<'_>, name: &str) -> Result<bool, Error> {
    let sql = "SELECT id FROM workspaces WHERE name = $1";
    Ok(tx.find("workspaces", sql, params![name])?.is_some())
}

/// Locks the workspace until the transaction ends, so that two servers cannot both decide on its
/// members. Returns `false` if it does not exist.
pub fn lock(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<bool, Error> {
    let sql = tx.locking("SELECT id FROM workspaces WHERE id = $1").into_owned();
    Ok(tx.find("workspaces", &sql, params![id])?.is_some())
}

/// Keeps a workspace from being deleted until the transaction ends, for those who add something to
/// it; others may do so at the same time. Returns `false` if it is deleted. To be called before
/// anything else of the workspace is locked, because whoever deletes it locks it first.
pub fn keep(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<bool, Error> {
    if tx.keeps(id) {
        return Ok(true);
    }
    let sql = tx.keeping("SELECT id FROM workspaces WHERE id = $1 AND deleted_at IS NULL");
    let is_open = tx.find("workspaces", &sql, params![id])?.is_some();
    if is_open {
        tx.note_kept(id);
    }
    Ok(is_open)
}

/// Lists all workspaces that are not deleted, for background work that serves all of them.
pub fn list(tx: &mut Tx<'_>) -> Result<Vec<Workspace>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM workspaces WHERE deleted_at IS NULL ORDER BY created_at, id"
    );
    tx.query("workspaces", &sql, params![])?.iter().map(read).collect()
}

/// Lists the workspaces whose deletion is not complete yet, in the order in which it began.
pub fn deleted(tx: &mut Tx<'_>) -> Result<Vec<WorkspaceId>, Error> {
    let sql = "SELECT id FROM workspaces WHERE deleted_at IS NOT NULL ORDER BY deleted_at, id";
    let rows = tx.query("workspaces", sql, params![])?;
    rows.iter().map(|row| Ok(WorkspaceId::known(row.text(0)?))).collect()
}

/// The workspaces that some rows belong to, as far as they were looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owners {
    /// Those that do not exist any more.
    pub gone: Vec<WorkspaceId>,
    /// The last one that was looked at, to go on after; `None` if there are no more.
    pub last: Option<WorkspaceId>,
}

/// Looks for rows that were left when their workspace was deleted, in up to `limit` workspaces that
/// follow `after`. It goes from one workspace to the next in the indexes, however many rows each has.
pub fn owners(tx: &mut Tx<'_>, after: Option<&WorkspaceId>, limit: i64) -> Result<Owners, Error> {
    let sql = format!(
        "WITH RECURSIVE owners (id, number) AS (
             SELECT {}, CAST(1 AS BIGINT)
             UNION ALL
             SELECT {}, owners.number + 1 FROM owners WHERE owners.id IS NOT NULL AND owners.number < $2
         )
         SELECT owners.id, workspaces.id FROM owners LEFT JOIN workspaces ON workspaces.id = owners.id
         WHERE owners.id IS NOT NULL ORDER BY owners.id",
        first_owner("$1"),
        first_owner("owners.id"),
    );
    let after = after.map_or("", WorkspaceId::as_str);
    let rows = tx.query("workspaces", &sql, params![after, limit])?;
    let mut found = Owners { gone: Vec::new(), last: None };
    for row in &rows {
        let id = WorkspaceId::known(row.text(0)?);
        if row.opt_text(1)?.is_none() {
            found.gone.push(id.clone());
        }
        found.last = Some(id);
    }
    if i64::try_from(rows.len()).is_ok_and(|seen| seen < limit) {
        found.last = None;
    }
    Ok(found)
}

/// Returns SQL for the first workspace after a place that has objects or people.
fn first_owner(after: &str) -> String {
    let heads = ["resources", "service_accounts", "members", "invitations"].map(|table| {
        format!("SELECT MIN(workspace_id) AS id FROM {table} WHERE workspace_id > {after}")
    });
    format!("(SELECT MIN(heads.id) FROM ({}) AS heads)", heads.join(" UNION ALL "))
}

pub fn list_of_user(tx: &mut Tx<'_>, user: &UserId) -> Result<Vec<Workspace>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM workspaces
         WHERE id IN (SELECT workspace_id FROM members WHERE user_id = $1) AND deleted_at IS NULL ORDER BY created_at, id"
    );
    tx.query("workspaces", &sql, params![user])?.iter().map(read).collect()
}

pub fn list_of_account(tx: &mut Tx<'_>, account: &AccountId) -> Result<Vec<Workspace>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM workspaces WHERE account_id = $1 AND deleted_at IS NULL ORDER BY created_at, id"
    );
    tx.query("workspaces", &sql, params![account])?.iter().map(read).collect()
}

/// Saves display name, labels, settings, `updated_at` and `updated_by`, unless the row has changed
/// since it was read.
pub fn update(tx: &mut Tx<'_>, workspace: &Workspace) -> Result<(), Error> {
    let sql = "UPDATE workspaces SET display_name = $3, labels = $4, settings = $5, updated_at = $6, updated_by = $7,
                      version = version + 1 WHERE id = $1 AND version = $2";
    let done = tx.execute(
        sql,
        params![
            &workspace.id,
            workspace.version,
            workspace.display_name.as_str(),
            json(&workspace.labels)?,
            json(&workspace.settings)?,
            workspace.updated_at,
            workspace.updated_by.as_str()
        ],
    )?;
    match done {
        1 => announce(
            tx,
            Some(&workspace.id),
            "workspace",
            workspace.id.as_str(),
            Act::Updated,
            &workspace.updated_by,
        ),
        _ => Err(Error::Stale { what: format!("workspace {}", workspace.name) }),
    }
}

/// Takes a workspace away from everybody, before it is deleted in steps: it has no members and no
/// invitations any more, and its service accounts are let in nowhere.
pub fn close(tx: &mut Tx<'_>, id: &WorkspaceId, by: &str) -> Result<(), Error> {
    dismiss(tx, id)?;
    let now = tx.world().now();
    tx.execute("UPDATE workspaces SET deleted_at = $2 WHERE id = $1", params![id, now])?;
    announce(tx, Some(id), "workspace", id.as_str(), Act::Deleted, by)
}

fn dismiss(tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<(), Error> {
    tx.execute("DELETE FROM members WHERE workspace_id = $1", params![id])?;
    tx.execute("DELETE FROM invitations WHERE workspace_id = $1", params![id]).map(drop)
}

/// Removes the workspace with its members, invitations, service accounts and their credentials, but
/// not its resources.
pub fn delete(tx: &mut Tx<'_>, id: &WorkspaceId, by: &str) -> Result<bool, Error> {
    for account in super::service_accounts::all(tx, id)? {
        super::service_accounts::delete(tx, id, &account.id, by)?;
    }
    dismiss(tx, id)?;
    let gone = tx.execute("DELETE FROM workspaces WHERE id = $1", params![id])? == 1;
    if gone {
        announce(tx, Some(id), "workspace", id.as_str(), Act::Deleted, by)?;
    }
    Ok(gone)
}
