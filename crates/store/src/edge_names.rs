//! Names at the edge, and the resources that answer under them. In the whole server a name has one
//! holder, however many workspaces want it. It is only given up in a transaction: when the resource
//! is deleted or takes another name.

use crate::{Error, Tx, params};
use types::ids::{ResourceId, WorkspaceId};

const TABLE: &str = "edge_names";

/// The resource that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub workspace: WorkspaceId,
    pub resource: ResourceId,
}

/// The outcome of a request for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The resource has the name, whether new or from before.
    Own,
    By(Holder),
}

/// Takes a name for a resource if it is free. If two do so at once, one waits for the other's
/// transaction.
pub fn take(tx: &mut Tx<'_>, name: &str, wanted: &Holder) -> Result<Taken, Error> {
    let sql = "INSERT INTO edge_names (name, workspace_id, resource_id) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING";
    if tx.execute(sql, params![name, &wanted.workspace, &wanted.resource])? == 1 {
        return Ok(Taken::Own);
    }
    match holder(tx, name)? {
        Some(holder) if holder == *wanted => Ok(Taken::Own),
        Some(holder) => Ok(Taken::By(holder)),
        // It was given up between the two statements.
        None => Err(tx.ask_for_repetition()),
    }
}

pub fn holder(tx: &mut Tx<'_>, name: &str) -> Result<Option<Holder>, Error> {
    let sql = "SELECT workspace_id, resource_id FROM edge_names WHERE name = $1";
    let Some(row) = tx.find(TABLE, sql, params![name])? else { return Ok(None) };
    Ok(Some(Holder {
        workspace: WorkspaceId::known(row.text(0)?),
        resource: ResourceId::known(row.text(1)?),
    }))
}

/// Returns the name of a resource that has at most one.
pub fn name_of(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<Option<String>, Error> {
    let row = tx.find(
        TABLE,
        "SELECT name FROM edge_names WHERE resource_id = $1 LIMIT 1",
        params![resource],
    )?;
    row.map(|row| row.text(0)).transpose()
}

/// Returns all names of a resource.
pub fn names_of(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM edge_names WHERE resource_id = $1 ORDER BY name";
    tx.query(TABLE, sql, params![resource])?.iter().map(|row| row.text(0)).collect()
}

/// Gives up one name of a resource.
pub fn give_back_one(tx: &mut Tx<'_>, resource: &ResourceId, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM edge_names WHERE resource_id = $1 AND name = $2";
    tx.execute(sql, params![resource, name]).map(drop)
}

/// Hands a name over from its present holder.
pub fn hand_over(tx: &mut Tx<'_>, name: &str, to: &Holder) -> Result<(), Error> {
    let sql = "UPDATE edge_names SET workspace_id = $2, resource_id = $3 WHERE name = $1";
    tx.execute(sql, params![name, &to.workspace, &to.resource]).map(drop)
}

/// Gives up all names of a resource except one.
pub fn keep_only(tx: &mut Tx<'_>, resource: &ResourceId, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM edge_names WHERE resource_id = $1 AND name <> $2";
    tx.execute(sql, params![resource, name]).map(drop)
}

/// Gives up all names of a resource.
pub fn give_back(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<(), Error> {
    tx.execute("DELETE FROM edge_names WHERE resource_id = $1", params![resource]).map(drop)
}
