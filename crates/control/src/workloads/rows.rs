//! Reading and writing rows as the server itself, on behalf of no user.

use crate::context::Context;
use crate::context::as_admin;
use crate::control::Control;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use crate::json;
use auth::Identity;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use store::identity::workspaces::{self, Workspace};
use store::resources;
use types::Kind;
use types::ids::{ResourceId, WorkspaceId};

/// Returns the server's own context in a workspace; `None` if the workspace is gone.
pub(crate) fn context(
    control: &Control,
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
) -> Result<Option<(Context, Workspace)>, Error> {
    let Some(workspace) = workspaces::find(tx, workspace)? else { return Ok(None) };
    let member = as_admin(&Arc::new(Identity::system()), &workspace);
    Ok(Some((Context { control: control.clone(), member }, workspace)))
}

/// Pause after a failure that may pass.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whether an error may pass by itself, because it is about the database as a whole. Other errors
/// are about one row, and must not keep anybody from the rows of others.
pub(crate) fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Store(stored) if stored.may_pass())
}

/// Whether it is not known if a change was made: its connection broke during the commit.
pub(crate) fn is_uncertain(error: &Error) -> bool {
    matches!(error, Error::Store(store::Error::Uncertain(_)))
}

/// Finds the object with this id, if it still exists and is of this kind.
pub(crate) fn find<K: Managed>(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Held<K>>, Error> {
    let row = resources::find_by_id(tx, id)?.filter(|row| row.kind == K::NAME);
    row.map(Held::read).transpose()
}

/// Like [`find`], but where there is no row, waits for the transaction that may be about to write it.
/// The database may still commit it after the connection of whoever began it is gone. That
/// transaction must hold the object ([`resources::hold`]).
pub(crate) async fn find_held<K: Managed>(
    control: &Control,
    id: &ResourceId,
) -> Result<Option<Held<K>>, Error> {
    let of = id.clone();
    let found = control.store.read(move |tx| find::<K>(tx, &of)).await?;
    if found.is_some() {
        return Ok(found);
    }
    let of = id.clone();
    let work = move |tx: &mut Tx<'_>| {
        resources::hold(tx, &of)?;
        find::<K>(tx, &of)
    };
    control.store.write(work).await
}

/// Like [`find`], and locks the row until the transaction ends.
pub(crate) fn lock<K: Managed>(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Option<Held<K>>, Error> {
    let Some(row) = resources::find_by_id(tx, id)?.filter(|row| row.kind == K::NAME) else {
        return Ok(None);
    };
    let row = resources::lock(tx, &row.workspace, row.kind, &row.parent, &row.name)?;
    row.filter(|row| row.id == *id).map(Held::read).transpose()
}

/// Finds an object like [`find`], with the server's own context in its workspace; `None` if either is
/// gone.
pub(crate) fn find_in<K: Managed>(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
) -> Result<Option<(Context, Held<K>)>, Error> {
    let held = find(tx, id)?;
    with_context(control, tx, held)
}

/// Like [`find_in`], and locks the row until the transaction ends.
pub(crate) fn lock_in<K: Managed>(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
) -> Result<Option<(Context, Held<K>)>, Error> {
    let held = lock(tx, id)?;
    with_context(control, tx, held)
}

fn with_context<K: Managed>(
    control: &Control,
    tx: &mut Tx<'_>,
    held: Option<Held<K>>,
) -> Result<Option<(Context, Held<K>)>, Error> {
    let Some(held) = held else { return Ok(None) };
    let found = context(control, tx, &held.row.workspace)?;
    Ok(found.map(|(context, _)| (context, held)))
}

/// Stores the state of an object without recording a change by anybody.
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
    let Some((context, held)) = lock_in::<K>(control, tx, id)? else { return Ok(()) };
    engine::remove::<K>(&context, tx, &held.parents(), &held.row.name).map(drop)
}

/// A cache of the workspaces read in one transaction, since many rows share one.
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
