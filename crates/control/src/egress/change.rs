//! Changes of rules while a sandbox runs.
//!
//! A row counts the changes of its rules (`rules`), and has the number that its instance was told
//! (`rules_kept`). Where the two differ, the task that follows the rows tells the machine; a caller
//! who changed the rules waits for that. So the next start repairs what a kill in between has left.

use crate::context::Context;
use crate::engine::{self, Secrets, Shown};
use crate::error::Error;
use crate::workloads::{now, rows};
use store::Tx;
use types::ids::ResourceId;
use types::kinds::Sandbox;

/// Replaces the wish of a sandbox. When this returns, its instance keeps the new rules.
pub async fn replace(
    context: &Context,
    name: String,
    wish: Sandbox,
    seen: Option<i64>,
) -> Result<Shown<Sandbox>, Error> {
    let of = context.clone();
    let work = move |tx: &mut Tx<'_>| {
        engine::require_version::<Sandbox>(&of, tx, &[], &name, seen)?;
        let (shown, held) = engine::replace_held(&of, tx, &[], &name, wish.clone())?;
        let differs = held.state.rules != held.state.rules_kept;
        let version = held.row.version;
        Ok::<_, Error>((shown, differs.then_some((held.row.id, version))))
    };
    let control = &context.control;
    let (mut shown, told) = control.store.write(work).await?;
    if let Some((id, version)) = told
        && control.machine().is_some()
    {
        now::obey(control, &id).await?;
        shown = after(context, shown, &id, version).await?;
    }
    Ok(shown)
}

/// Updates the answer with the row as it is after the machine was told, because the next change has
/// to name its new version. Secrets that are shown only once are kept from the answer before.
async fn after(
    context: &Context,
    before: Shown<Sandbox>,
    id: &ResourceId,
    version: i64,
) -> Result<Shown<Sandbox>, Error> {
    let (of, id) = (context.clone(), id.clone());
    let read = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::find::<Sandbox>(tx, &id)? else { return Ok(None) };
        let object = engine::present(&of, tx, &held, &Secrets::Masked)?;
        Ok::<_, Error>(Some((object, held.row.version)))
    };
    let Some((now, its)) = context.control.store.read(read).await? else { return Ok(before) };
    if its == version {
        return Ok(before);
    }
    let (events, status, errors) = (now.events, now.status, now.errors);
    let object = Sandbox { events, status, errors, ..before.object };
    Ok(Shown { object, version: its })
}
