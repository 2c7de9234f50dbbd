//! Images of registries that a workspace may run. Machines hold the content and share it; the right
//! to it is recorded here, so that it holds on all servers and after every restart.

use crate::{Error, Tx, params};
use types::ids::WorkspaceId;

const TABLE: &str = "image_rights";

/// Records that a registry let a workspace have an image under a name.
pub fn grant(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    name: &str,
    digest: &str,
) -> Result<(), Error> {
    let now = tx.world().now();
    let sql = "INSERT INTO image_rights (workspace_id, name, digest, granted_at) VALUES ($1, $2, $3, $4)
               ON CONFLICT (workspace_id, name) DO UPDATE SET digest = excluded.digest, granted_at = excluded.granted_at";
    tx.execute(sql, params![workspace, name, digest, now]).map(drop)
}

/// Returns the digest that a name stands for in a workspace, if the workspace may run it.
pub fn find(tx: &mut Tx<'_>, workspace: &WorkspaceId, name: &str) -> Result<Option<String>, Error> {
    let sql = "SELECT digest FROM image_rights WHERE workspace_id = $1 AND name = $2";
    tx.find(TABLE, sql, params![workspace, name])?.map(|row| row.text(0)).transpose()
}

/// Lists names that a workspace may use, in order and without digests.
pub fn names(tx: &mut Tx<'_>, workspace: &WorkspaceId, limit: i64) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM image_rights WHERE workspace_id = $1 AND name NOT LIKE '%@sha256:%'
               ORDER BY name LIMIT $2";
    tx.query(TABLE, sql, params![workspace, limit])?.iter().map(|row| row.text(0)).collect()
}

/// Revokes a workspace's right to an image name.
pub fn revoke(tx: &mut Tx<'_>, workspace: &WorkspaceId, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM image_rights WHERE workspace_id = $1 AND name = $2";
    tx.execute(sql, params![workspace, name]).map(drop)
}

/// Revokes a workspace's rights to a repository: all of its tags and digests.
pub fn revoke_repository(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    repository: &str,
) -> Result<(), Error> {
    for name in of_repository(tx, workspace, repository)? {
        revoke(tx, workspace, &name)?;
    }
    Ok(())
}

/// Lists the names of a repository's images that a workspace was granted: `name:tag` and
/// `name@digest`.
pub fn of_repository(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    repository: &str,
) -> Result<Vec<String>, Error> {
    // `A` is the character after `@`, and no name has one of those between `:` and `@`. Unlike
    // `LIKE`, a range uses the key: a workspace may have many names.
    let sql = "SELECT name FROM image_rights
               WHERE workspace_id = $1 AND name >= $2 || ':' AND name < $2 || 'A'";
    let rows = tx.query(TABLE, sql, params![workspace, repository])?;
    rows.iter().map(|row| row.text(0)).collect()
}

pub(crate) fn delete_of_workspace(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    limit: i64,
) -> Result<u64, Error> {
    let sql = "DELETE FROM image_rights WHERE workspace_id = $1 AND name IN
               (SELECT name FROM image_rights WHERE workspace_id = $1 LIMIT $2)";
    tx.execute(sql, params![workspace, limit])
}
