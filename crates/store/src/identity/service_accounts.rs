//! Service accounts: identities of programs, each in one workspace.

use super::subject::read_role;
use super::{Digest, Role, Subject, announce, api_keys, grants};
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{ResourceId, ServiceAccountId, WorkspaceId};

#[derive(Debug, Clone)]
pub struct ServiceAccount {
    pub id: ServiceAccountId,
    pub workspace: WorkspaceId,
    /// The workload whose identity this is, if any. Only the server manages it.
    pub workload: Option<ResourceId>,
    pub name: String,
    pub description: String,
    pub role: Role,
    pub secret: Digest,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub created_by: String,
    pub updated_by: String,
}

const COLUMNS: &str = "id, workspace_id, name, description, role, secret_digest, created_at, updated_at, created_by, \
                       updated_by, workload_id";

fn read(row: &Row) -> Result<ServiceAccount, Error> {
    Ok(ServiceAccount {
        id: ServiceAccountId::known(row.text(0)?),
        workspace: WorkspaceId::known(row.text(1)?),
        name: row.text(2)?,
        description: row.text(3)?,
        role: read_role(row, 4)?,
        secret: Digest::read(row, 5)?,
        created_at: row.time(6)?,
        updated_at: row.time(7)?,
        created_by: row.text(8)?,
        updated_by: row.text(9)?,
        workload: row.opt_text(10)?.map(ResourceId::known),
    })
}

pub fn create(tx: &mut Tx<'_>, account: &ServiceAccount) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO service_accounts ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
    );
    tx.execute(
        &sql,
        params![
            &account.id,
            &account.workspace,
            account.name.as_str(),
            account.description.as_str(),
            account.role.name(),
            &account.secret,
            account.created_at,
            account.updated_at,
            account.created_by.as_str(),
            account.updated_by.as_str(),
            account.workload.as_ref().map(ResourceId::as_str)
        ],
    )?;
    announce(
        tx,
        Some(&account.workspace),
        "service-account",
        account.id.as_str(),
        Act::Created,
        &account.created_by,
    )
}

/// Finds an account by id alone, for credentials, which do not name a workspace.
pub fn find_anywhere(
    tx: &mut Tx<'_>,
    id: &ServiceAccountId,
) -> Result<Option<ServiceAccount>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM service_accounts WHERE id = $1");
    tx.find("service_accounts", &sql, params![id])?.as_ref().map(read).transpose()
}

/// Finds the identity of a workload.
pub fn find_of_workload(
    tx: &mut Tx<'_>,
    workload: &ResourceId,
) -> Result<Option<ServiceAccount>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM service_accounts WHERE workload_id = $1");
    tx.find("service_accounts", &sql, params![workload])?.as_ref().map(read).transpose()
}

/// Finds an account that people manage.
pub fn find(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    id: &ServiceAccountId,
) -> Result<Option<ServiceAccount>, Error> {
    let theirs =
        |account: &ServiceAccount| account.workspace == *workspace && account.workload.is_none();
    Ok(find_anywhere(tx, id)?.filter(theirs))
}

/// Lists the accounts that people manage.
pub fn list(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<Vec<ServiceAccount>, Error> {
    let mut found = all(tx, workspace)?;
    found.retain(|account| account.workload.is_none());
    Ok(found)
}

/// Lists all accounts, including those of workloads.
pub(crate) fn all(tx: &mut Tx<'_>, workspace: &WorkspaceId) -> Result<Vec<ServiceAccount>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM service_accounts WHERE workspace_id = $1 ORDER BY created_at, id"
    );
    tx.query("service_accounts", &sql, params![workspace])?.iter().map(read).collect()
}

/// Saves name, description, role, `updated_at` and `updated_by`.
pub fn update(tx: &mut Tx<'_>, account: &ServiceAccount) -> Result<bool, Error> {
    let sql = "UPDATE service_accounts SET name = $3, description = $4, role = $5, updated_at = $6, updated_by = $7
               WHERE workspace_id = $1 AND id = $2";
    let done = tx.execute(
        sql,
        params![
            &account.workspace,
            &account.id,
            account.name.as_str(),
            account.description.as_str(),
            account.role.name(),
            account.updated_at,
            account.updated_by.as_str()
        ],
    )?;
    if done == 1 {
        announce(
            tx,
            Some(&account.workspace),
            "service-account",
            account.id.as_str(),
            Act::Updated,
            &account.updated_by,
        )?;
    }
    Ok(done == 1)
}

/// Removes the account with its keys and tokens.
pub fn delete(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    id: &ServiceAccountId,
    by: &str,
) -> Result<bool, Error> {
    let sql = "DELETE FROM service_accounts WHERE workspace_id = $1 AND id = $2";
    if tx.execute(sql, params![workspace, id])? == 0 {
        return Ok(false);
    }
    let subject = Subject::ServiceAccount(id.clone());
    api_keys::delete_of_subject(tx, &subject)?;
    grants::delete_of_subject(tx, &subject)?;
    announce(tx, Some(workspace), "service-account", id.as_str(), Act::Deleted, by)?;
    Ok(true)
}
