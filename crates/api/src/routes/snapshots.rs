//! Snapshots of sandboxes.

use crate::call::{Body, Call};
use crate::engine::{self, Held, Managed, Paging};
use crate::error::Error;
use crate::missing::Missing;
use crate::query::NoQuery;
use crate::reply::{Reply, Silent};
use auth::Member;
use types::kinds::{Sandbox, Snapshot};
use types::wire::SandboxSnapshotRequest;

impl Managed for Snapshot {
    const PAGING: Paging = Paging::Bare;
}

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<Snapshot>>, Error> {
    super::resources::list_bare::<Snapshot>(call).await
}

pub(crate) async fn create(
    call: Call<Member, NoQuery, Body<SandboxSnapshotRequest>>,
) -> Result<Reply<Snapshot>, Error> {
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    call.app.store.read(move |tx| Held::<Sandbox>::get(&desk, tx, &[], &name).map(drop)).await?;
    Err(Error::Missing(Missing::Snapshot))
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Silent, Error> {
    let (desk, parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    call.app.store.write(move |tx| engine::remove::<Snapshot>(&desk, tx, &parents, &name)).await?;
    Ok(Silent)
}
