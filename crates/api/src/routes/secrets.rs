//! Secrets of a workspace: written by name, never read back.

use crate::call::{Call, Wish};
use crate::engine::{self, Managed, Paging};
use crate::error::Error;
use crate::query::NoQuery;
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::KindName;
use types::kinds::Secret;

impl Managed for Secret {
    const PAGING: Paging = Paging::Bare;
}

/// Makes a secret, or gives it a new value.
pub(crate) async fn upsert(
    call: Call<Member, NoQuery, Wish<Secret>>,
) -> Result<Reply<Secret>, Error> {
    let (desk, wish) = (call.desk(), call.body.0.clone());
    call.once(move |tx| match desk.find(tx, KindName::Secret, &[], &wish.name)? {
        None => engine::create(&desk, tx, &[], wish.clone()),
        Some(_) => {
            engine::replace(&desk, tx, &[], &wish.name, wish.clone()).map(|shown| shown.object)
        }
    })
    .await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct NameQuery {
    /// Which secret. Required.
    pub name: Option<String>,
}

/// Removes the secret that the query names: some names do not fit into a path.
pub(crate) async fn remove_by_query(call: Call<Member, NameQuery>) -> Result<Reply<Secret>, Error> {
    let name =
        call.query.name.clone().ok_or_else(|| Error::Malformed("`name` is required".into()))?;
    let desk = call.desk();
    let work = move |tx: &mut Tx<'_>| engine::remove::<Secret>(&desk, tx, &[], &name);
    Ok(Reply::of(&call.app.store.write(work).await?))
}
