//! Snapshots of sandboxes.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::{Reply, Silent};
use auth::Member;
use control::Missing;
use control::engine::{self, Held};
use types::kinds::{Sandbox, Snapshot};
use types::wire::SandboxSnapshotRequest;

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<Snapshot>>, Error> {
    super::resources::list_bare::<Snapshot>(call).await
}

pub(crate) async fn create(
    call: Call<Member, NoQuery, Body<SandboxSnapshotRequest>>,
) -> Result<Reply<Snapshot>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    call.app.store.read(move |tx| Held::<Sandbox>::get(&context, tx, &[], &name).map(drop)).await?;
    Err(control::Error::Missing(Missing::Snapshot).into())
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Silent, Error> {
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    call.app
        .store
        .write(move |tx| engine::remove::<Snapshot>(&context, tx, &parents, &name))
        .await?;
    Ok(Silent)
}
