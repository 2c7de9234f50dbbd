//! Rows of sandboxes as the server itself reads and writes them, in the name of nobody.

use crate::context::Context;
use crate::context::as_admin;
use crate::control::Control;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use crate::json;
use auth::Identity;
use std::collections::HashMap;
use std::sync::Arc;
use store::Tx;
use store::identity::workspaces::{self, Workspace};
use store::resources;
use types::Kind;
use types::ids::{ResourceId, WorkspaceId};

/// The server's own context in a workspace; `None` when the workspace is gone.
pub(crate) fn context(
    control: &Control,
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
) -> Result<Option<(Context, Workspace)>, Error> {
    let Some(workspace) = workspaces::find(tx, workspace)? else { return Ok(None) };
    let member = as_admin(&Arc::new(Identity::system()), &workspace);
    Ok(Some((Context { control: control.clone(), member }, workspace)))
}

/// The object with this id, if it is still there and of this kind.
pub(crate) fn find<K: Managed>(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Held<K>>, Error> {
    let row = resources::find_by_id(tx, id)?.filter(|row| row.kind == K::NAME);
    row.map(Held::read).transpose()
}

/// As [`find`], and nobody else changes it before the transaction ends.
pub(crate) fn lock<K: Managed>(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Held<K>>, Error> {
    let Some(row) = resources::find_by_id(tx, id)?.filter(|row| row.kind == K::NAME) else {
        return Ok(None);
    };
    let row = resources::lock(tx, &row.workspace, row.kind, &row.parent, &row.name)?;
    row.filter(|row| row.id == *id).map(Held::read).transpose()
}

/// Stores what the server knows of an object, which is no change by anybody.
pub(crate) fn put_state<K: Managed>(
    tx: &mut Tx<'_>,
    mut held: Held<K>,
    state: K::State,
) -> Result<Held<K>, Error> {
    held.row.status = <K as Kind>::status(&state);
    held.row.state = json::text(&state);
    held.state = state;
    held.row = resources::update(tx, held.row)?;
    Ok(held)
}

/// Removes an object in the name of the server.
pub(super) fn remove<K: Managed>(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
) -> Result<(), Error> {
    let Some(held) = lock::<K>(tx, id)? else { return Ok(()) };
    let Some((context, _)) = context(control, tx, &held.row.workspace)? else { return Ok(()) };
    engine::remove::<K>(&context, tx, &held.parents(), &held.row.name).map(drop)
}

/// Workspaces that were read in this transaction: many rows are of the same.
#[derive(Default)]
pub(super) struct Workspaces(HashMap<WorkspaceId, Option<Workspace>>);

impl Workspaces {
    pub(super) fn find(
        &mut self,
        tx: &mut Tx<'_>,
        id: &WorkspaceId,
    ) -> Result<Option<Workspace>, Error> {
        if let Some(known) = self.0.get(id) {
            return Ok(known.clone());
        }
        let found = workspaces::find(tx, id)?;
        self.0.insert(id.clone(), found.clone());
        Ok(found)
    }
}
