//! Archiving sandboxes, bringing them back, and setting them back to one of their snapshots.
//!
//! An archive is a snapshot that the sandbox itself begins with later. Once it is taken, the
//! sandbox's instance, memory and disk are given back.

use crate::context::Context;
use crate::engine::{self, Held, Secrets, Shown};
use crate::error::{Conflict, Error};
use crate::idempotency::{JsonAnswer, RequestKey, ShownAnswer, earlier, once, once_shown};
use crate::missing::Missing;
use crate::snapshot_base;
use crate::snapshots;
use crate::workloads::archive::ARCHIVE;
use crate::workloads::now;
use store::Tx;
use types::Kind;
use types::ids::ResourceId;
use types::kinds::Sandbox;
use types::kinds::sandbox::{SandboxArchive, State};
use types::parts::Status;
use types::wire::SandboxRestoreResponse;

/// The type of events about setting a sandbox back to a snapshot.
const RESTORE: &str = "restore";

fn refused(sandbox: &Held<Sandbox>, wants: &'static str) -> Error {
    let status = sandbox.row.status.unwrap_or(Status::Deploying).name();
    Conflict::SandboxState { status, wants }.into()
}

/// Begins to archive a sandbox: its row says so, and the task that follows the rows does the work.
/// With a key it runs only once.
pub async fn archive(
    context: Context,
    name: String,
    key: Option<RequestKey>,
) -> Result<ShownAnswer, Error> {
    let store = context.control.store.clone();
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<Sandbox>::lock(&context, tx, &[], &name)?;
        if context.control.snapshot_store().is_none() {
            return Err(Error::Missing(Missing::Snapshot));
        }
        if held.row.status != Some(Status::Deployed) {
            return Err(refused(&held, "only one that is DEPLOYED can be archived"));
        }
        let (now, mut state) = (context.world().now(), held.state.clone());
        state.archive = Some(SandboxArchive { started_at: Some(now), ..Default::default() });
        state.lifecycle.record(ARCHIVE, Status::Archiving, "its files are being archived", now);
        shown(&context, tx, held, state)
    };
    once_shown(&store, key, work).await
}

fn shown(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<Sandbox>,
    state: State,
) -> Result<Shown<Sandbox>, Error> {
    let held = engine::change_state(context, tx, held, state)?;
    let object = engine::present(context, tx, &held, &Secrets::Masked)?;
    Ok(Shown { object, version: held.row.version })
}

/// Brings an archived sandbox back with its files. If they have to be fetched, it is `UNARCHIVING`
/// until they are there, and the caller does not wait for that. With a key it runs only once, and
/// repetitions get the sandbox as it is by then.
pub async fn unarchive(
    context: Context,
    name: String,
    key: Option<RequestKey>,
) -> Result<ShownAnswer, Error> {
    let store = context.control.store.clone();
    let (of, sandbox) = (context.clone(), name.clone());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<Sandbox>::lock(&of, tx, &[], &sandbox)?;
        if held.row.status != Some(Status::Archived) {
            return Err(refused(&held, "only one that is ARCHIVED can be brought back"));
        }
        let (now, mut state) = (of.world().now(), held.state.clone());
        state.launch += 1;
        let archive = state.archive.get_or_insert_default();
        archive.restore_started_at = Some(now);
        state.lifecycle.record(ARCHIVE, Status::Unarchiving, "it comes back with its files", now);
        engine::change_state(&of, tx, held, state).map(|held| held.row.name)
    };
    let replayed = once(&store, key, work).await?.replayed;
    if !replayed {
        reconcile_named(&context, &name).await?;
    }
    let get =
        move |tx: &mut Tx<'_>| engine::get::<Sandbox>(&context, tx, &[], &name, &Secrets::Masked);
    let Shown { object, version } = store.read(get).await?;
    let answer = JsonAnswer { replayed, ..JsonAnswer::of(&object) };
    Ok(ShownAnswer { answer, version })
}

/// Brings a sandbox into the state that its row now asks for.
async fn reconcile_named(context: &Context, name: &str) -> Result<(), Error> {
    let (of, name) = (context.clone(), name.to_owned());
    let find = move |tx: &mut Tx<'_>| of.find(tx, Sandbox::NAME, &[], &name);
    if let Some(row) = context.control.store.read(find).await? {
        now::reconcile(&context.control, &row.id).await;
    }
    Ok(())
}

/// Sets a sandbox back to one of its snapshots: its instance ends, and another begins with those
/// files. The contents of its disk are lost; volumes stay as they are. With a key it runs only
/// once.
pub async fn restore(
    context: Context,
    name: String,
    snapshot: String,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    let store = context.control.store.clone();
    if let Some(answer) = earlier(&store, key.as_ref()).await? {
        return Ok(answer);
    }
    bring(&context, &name, &snapshot).await?;
    let (of, sandbox) = (context.clone(), name.clone());
    let work = move |tx: &mut Tx<'_>| begin_restore(&of, tx, &sandbox, &snapshot);
    let answer = once(&store, key, work).await?;
    if !answer.replayed {
        reconcile_named(&context, &name).await?;
    }
    Ok(answer)
}

fn begin_restore(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    snapshot: &str,
) -> Result<SandboxRestoreResponse, Error> {
    let held = Held::<Sandbox>::lock(context, tx, &[], name)?;
    let begins = snapshots::usable(context, tx, Some(&held.row.id), snapshot)?;
    if held.state.is_away() {
        return Err(refused(&held, "unarchive it first"));
    }
    if held.row.is_terminated() {
        return Err(refused(&held, "fork the snapshot instead"));
    }
    snapshot_base::require_image(context, &begins, held.wish.image())?;
    let answer = SandboxRestoreResponse {
        name: held.row.name.clone(),
        snapshot_id: begins.row.name.clone(),
    };
    let state = set_back(context, &held, begins.row.id);
    engine::change_state(context, tx, held, state)?;
    Ok(answer)
}

/// Makes sure that a snapshot's files are on the machine, before a sandbox gives up its own.
async fn bring(context: &Context, sandbox: &str, snapshot: &str) -> Result<(), Error> {
    let Some((snapshots, _)) = context.control.snapshot_store() else { return Ok(()) };
    let of = context.clone();
    let (sandbox, snapshot) = (sandbox.to_owned(), snapshot.to_owned());
    let find = move |tx: &mut Tx<'_>| {
        let sandbox = Held::<Sandbox>::get(&of, tx, &[], &sandbox)?.row.id;
        Ok::<_, Error>(snapshots::find(&of, tx, Some(&sandbox), &snapshot)?.row.id)
    };
    let id = context.control.store.read(find).await?;
    if !snapshots.is_here(&id) {
        snapshots.fetch(context.member.workspace.as_str(), &id).await?;
    }
    Ok(())
}

fn set_back(context: &Context, held: &Held<Sandbox>, snapshot: ResourceId) -> State {
    let mut state = held.state.clone();
    state.launch += 1;
    state.snapshot = Some(snapshot);
    let runtime = held.wish.spec.runtime.as_ref();
    state.fresh_disk = runtime.is_some_and(|runtime| runtime.storage_mb.is_some());
    state.activity = None;
    state.errors.clear();
    let status = match held.row.status {
        Some(status @ Status::Deactivated) => status,
        _ => Status::Deploying,
    };
    let message = "it is set back to the files of a snapshot; its memory and processes are gone";
    state.lifecycle.record(RESTORE, status, message, context.world().now());
    state
}
