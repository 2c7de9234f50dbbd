//! Which resource answers under which name at the edge. A name has one holder in the whole server,
//! whichever workspaces want it, and loses it only in a transaction: with the resource, or when the
//! resource takes another name.

use crate::{Error, Tx, params};
use types::ids::{ResourceId, WorkspaceId};

const TABLE: &str = "edge_names";

/// Who has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub workspace: WorkspaceId,
    pub resource: ResourceId,
}

/// What came of the wish for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The resource has it, from now on or since before.
    Own,
    By(Holder),
}

/// Takes a name for a resource if it is free. Of two at once one waits for the other's transaction.
pub fn take(tx: &mut Tx<'_>, name: &str, wanted: &Holder) -> Result<Taken, Error> {
    let sql = "INSERT INTO edge_names (name, workspace_id, resource_id) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING";
    if tx.execute(TABLE, sql, params![name, &wanted.workspace, &wanted.resource])? == 1 {
        return Ok(Taken::Own);
    }
    match holder(tx, name)? {
        Some(holder) if holder == *wanted => Ok(Taken::Own),
        Some(holder) => Ok(Taken::By(holder)),
        // It was given back between the two statements.
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

/// The name of a resource that has at most one.
pub fn name_of(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<Option<String>, Error> {
    let row = tx.find(
        TABLE,
        "SELECT name FROM edge_names WHERE resource_id = $1 LIMIT 1",
        params![resource],
    )?;
    row.map(|row| row.text(0)).transpose()
}

/// All names of a resource.
pub fn names_of(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM edge_names WHERE resource_id = $1 ORDER BY name";
    tx.query(TABLE, sql, params![resource])?.iter().map(|row| row.text(0)).collect()
}

/// Gives back one name of a resource.
pub fn give_back_one(tx: &mut Tx<'_>, resource: &ResourceId, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM edge_names WHERE resource_id = $1 AND name = $2";
    tx.execute(TABLE, sql, params![resource, name]).map(drop)
}

/// Hands a name over from whoever has it.
pub fn hand_over(tx: &mut Tx<'_>, name: &str, to: &Holder) -> Result<(), Error> {
    let sql = "UPDATE edge_names SET workspace_id = $2, resource_id = $3 WHERE name = $1";
    tx.execute(TABLE, sql, params![name, &to.workspace, &to.resource]).map(drop)
}

/// Gives back all names of a resource but one.
pub fn keep_only(tx: &mut Tx<'_>, resource: &ResourceId, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM edge_names WHERE resource_id = $1 AND name <> $2";
    tx.execute(TABLE, sql, params![resource, name]).map(drop)
}

/// Gives back all names of a resource.
pub fn give_back(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<(), Error> {
    tx.execute(TABLE, "DELETE FROM edge_names WHERE resource_id = $1", params![resource]).map(drop)
}
