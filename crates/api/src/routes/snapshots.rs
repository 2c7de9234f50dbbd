//! Snapshots of one sandbox, and of all sandboxes in the workspace.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::pages::WrittenList;
use crate::http::query::{ListQuery, NoQuery};
use crate::http::reply::{Reply, Silent};
use crate::routes::{resources, sandboxes};
use auth::Member;
use control::forks::{self, Source};
use control::{archives, snapshots};
use types::Problems;
use types::kinds::Snapshot;
use types::wire::{
    SandboxForkRequest, SandboxForkResponse, SandboxRestoreResponse, SandboxSnapshotRequest,
};

pub(crate) async fn list(call: Call<Member, ListQuery>) -> Result<WrittenList<Snapshot>, Error> {
    // Snapshots have statuses of their own, for which there is no filter.
    let query = ListQuery { status: None, ..call.query.clone() };
    resources::list(Call { query, ..call }).await
}

pub(crate) async fn list_of_sandbox(call: Call<Member>) -> Result<Reply<Vec<Snapshot>>, Error> {
    let (context, sandbox) = (call.context(), call.path.name().to_owned());
    let work = move |tx: &mut store::Tx<'_>| snapshots::of_sandbox(&context, tx, &sandbox);
    Ok(Reply::of(&call.app.lists.read(call.who.workspace.as_str(), work).await?))
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<Snapshot>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    Ok(call.app.store.read(move |tx| snapshots::get(&context, tx, &name)).await?.into())
}

pub(crate) async fn create_of_sandbox(
    call: Call<Member, NoQuery, Body<SandboxSnapshotRequest>>,
) -> Result<Reply<Snapshot>, Error> {
    let sandbox = call.path.name().to_owned();
    taken(call, sandbox).await
}

pub(crate) async fn create(
    call: Call<Member, NoQuery, Body<SandboxSnapshotRequest>>,
) -> Result<Reply<Snapshot>, Error> {
    let source = call.body.0.source.as_ref().map(|source| source.name.clone());
    let Some(sandbox) = source.filter(|name| !name.is_empty()) else {
        let missing = Problems::one("source.name", "is required: the sandbox to take it of");
        return Err(control::Error::from(missing).into());
    };
    taken(call, sandbox).await
}

async fn taken(
    call: Call<Member, NoQuery, Body<SandboxSnapshotRequest>>,
    sandbox: String,
) -> Result<Reply<Snapshot>, Error> {
    // How long this takes depends on how much the sandbox has written.
    call.long.announce();
    let (context, name) = (call.context(), call.body.0.name);
    let (snapshot, replayed) = snapshots::create(context, sandbox, name, call.key).await?;
    Ok(Reply::from(snapshot).marked(replayed))
}

pub(crate) async fn remove_of_sandbox(call: Call<Member>) -> Result<Silent, Error> {
    let (context, sandbox, name) =
        (call.context(), call.path.at(0).to_owned(), call.path.name().to_owned());
    let work = move |tx: &mut store::Tx<'_>| snapshots::remove(&context, tx, Some(&sandbox), &name);
    call.app.store.write(work).await?;
    Ok(Silent)
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Silent, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    call.app.store.write(move |tx| snapshots::remove(&context, tx, None, &name)).await?;
    Ok(Silent)
}

pub(crate) async fn fork(
    call: Call<Member, NoQuery, Body<SandboxForkRequest>>,
) -> Result<Reply<SandboxForkResponse>, Error> {
    sandboxes::may_deploy(&call)?;
    let source = Source::Snapshot(call.path.name().to_owned());
    Ok(forks::fork(call.context(), source, call.body.0, call.key).await?.into())
}

pub(crate) async fn restore(call: Call<Member>) -> Result<Reply<SandboxRestoreResponse>, Error> {
    let (sandbox, snapshot) = (call.path.at(0).to_owned(), call.path.name().to_owned());
    Ok(archives::restore(call.context(), sandbox, snapshot, call.key).await?.into())
}
