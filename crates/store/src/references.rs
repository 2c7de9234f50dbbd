//! References between resources, so that a connection in use is not deleted and a policy knows its
//! users.

use crate::db::Named;
use crate::resources::Stored;
use crate::{Error, Row, Tx, params};
use std::collections::BTreeSet;
use types::ids::{ResourceId, WorkspaceId};
use types::{KindName, Reference};

const TABLE: &str = "resource_references";

/// Stores the references of an object.
pub fn replace(tx: &mut Tx<'_>, from: &Stored, wanted: &[Reference]) -> Result<(), Error> {
    // Most objects refer to nothing, and most writes change none of their references.
    let wanted: BTreeSet<(KindName, &str)> =
        wanted.iter().map(|to| (to.kind, to.name.as_str())).collect();
    let stored = match tx.remembered(&from.id) {
        Some(references) => references,
        None => read(tx, &from.id)?,
    };
    for (to_kind, to_name) in
        stored.iter().filter(|(kind, name)| !wanted.contains(&(*kind, name.as_str())))
    {
        let sql =
            "DELETE FROM resource_references WHERE from_id = $1 AND to_kind = $2 AND to_name = $3";
        tx.execute(sql, params![&from.id, to_kind.name(), to_name.as_str()])?;
    }
    for (to_kind, to_name) in
        wanted.iter().filter(|(kind, name)| !stored.contains(&(*kind, (*name).to_owned())))
    {
        tx.execute(
            "INSERT INTO resource_references (from_id, workspace_id, from_kind, from_name, to_kind, to_name)
             VALUES ($1, $2, $3, $4, $5, $6)",
            params![&from.id, &from.workspace, from.kind.name(), from.name.as_str(), to_kind.name(), *to_name],
        )?;
    }
    Ok(())
}

fn read(tx: &mut Tx<'_>, from: &ResourceId) -> Result<Named, Error> {
    let sql = "SELECT to_kind, to_name FROM resource_references WHERE from_id = $1";
    let rows = tx.query(TABLE, sql, params![from])?;
    rows.iter().map(|row| Ok((kind(&row.text(0)?)?, row.text(1)?))).collect()
}

/// Reads the same from a JSON column; null means no references.
pub(crate) fn read_all(row: &Row, column: usize) -> Result<Named, Error> {
    let Some(text) = row.opt_text(column)? else { return Ok(Named::new()) };
    let pairs: Vec<(String, String)> =
        serde_json::from_str(&text).map_err(|error| Error::corrupt(TABLE, &text, error))?;
    pairs.into_iter().map(|(of, name)| Ok((kind(&of)?, name))).collect()
}

/// Lists the objects that refer to an object, by kind and name.
pub fn users(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    to: KindName,
    name: &str,
) -> Result<Vec<(KindName, String)>, Error> {
    let sql = "SELECT from_kind, from_name FROM resource_references
               WHERE workspace_id = $1 AND to_kind = $2 AND to_name = $3 ORDER BY from_kind, from_name";
    let rows = tx.query(TABLE, sql, params![workspace, to.name(), name])?;
    rows.iter().map(|row| Ok((kind(&row.text(0)?)?, row.text(1)?))).collect()
}

fn kind(name: &str) -> Result<KindName, Error> {
    KindName::parse(name).ok_or_else(|| Error::corrupt(TABLE, name, "an unknown kind"))
}
