//! Addresses at which requests reach the triggers of a workspace.

use crate::{Error, Tx, params};
use types::KindName;
use types::ids::WorkspaceId;

const TABLE: &str = "trigger_addresses";

/// The trigger that answers at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub kind: KindName,
    pub name: String,
    pub trigger: String,
}

/// Takes an address, and returns whether it was free. If two do so at once, one waits for the
/// other's transaction.
pub fn take(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    address: &str,
    holder: &Holder,
) -> Result<bool, Error> {
    let done = tx.execute(
        "INSERT INTO trigger_addresses (workspace_id, address, kind, name, trigger_id) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (workspace_id, address) DO NOTHING",
        params![workspace, address, holder.kind.name(), holder.name.as_str(), holder.trigger.as_str()],
    )?;
    Ok(done == 1)
}

/// Gives up all addresses of an object.
pub fn give_back(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    kind: KindName,
    name: &str,
) -> Result<(), Error> {
    let sql = "DELETE FROM trigger_addresses WHERE workspace_id = $1 AND kind = $2 AND name = $3";
    tx.execute(sql, params![workspace, kind.name(), name])?;
    Ok(())
}

pub fn find(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    address: &str,
) -> Result<Option<Holder>, Error> {
    let sql = "SELECT kind, name, trigger_id FROM trigger_addresses WHERE workspace_id = $1 AND address = $2";
    let Some(row) = tx.find(TABLE, sql, params![workspace, address])? else { return Ok(None) };
    let kind = KindName::parse(&row.text(0)?)
        .ok_or_else(|| Error::corrupt(TABLE, address, "it has an unknown kind"))?;
    Ok(Some(Holder { kind, name: row.text(1)?, trigger: row.text(2)? }))
}

pub(crate) fn delete_of_workspace(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    limit: i64,
) -> Result<u64, Error> {
    let sql = "DELETE FROM trigger_addresses WHERE workspace_id = $1 AND address IN
               (SELECT address FROM trigger_addresses WHERE workspace_id = $1 LIMIT $2)";
    tx.execute(sql, params![workspace, limit])
}
