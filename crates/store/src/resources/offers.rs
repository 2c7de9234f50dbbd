//! Offers of images to workspaces of other accounts. An offer is a row of the workspace that makes
//! it. In place of an external id it has the id of the workspace that it is made to: unlike a name,
//! an id is never given to another workspace.

use super::stored::{Stored, TABLE, select};
use crate::{Error, Tx, params};
use types::ids::WorkspaceId;

/// Notes the workspace that an offer is made to.
pub fn address(tx: &mut Tx<'_>, offer: Stored, to: &WorkspaceId) -> Result<Stored, Error> {
    super::update(tx, Stored { external_id: Some(to.to_string()), ..offer })
}

/// Lists the offers made to a workspace, newest first.
pub fn list(tx: &mut Tx<'_>, to: &WorkspaceId, limit: i64) -> Result<Vec<Stored>, Error> {
    // The kind is written out, because otherwise the index of offers would not be used.
    let sql = select!(
        "WHERE kind = 'image-share' AND external_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2"
    );
    tx.query(TABLE, sql, params![to, limit])?.into_iter().map(Stored::try_from).collect()
}

/// Finds an offer made to a workspace.
pub fn find(tx: &mut Tx<'_>, to: &WorkspaceId, name: &str) -> Result<Option<Stored>, Error> {
    let sql = select!("WHERE kind = 'image-share' AND external_id = $1 AND name = $2");
    tx.find(TABLE, sql, params![to, name])?.map(Stored::try_from).transpose()
}
