//! Secrets of a workspace: set by name, never returned.

use crate::http::call::{Call, Wish};
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::Member;
use control::engine;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::KindName;
use types::kinds::Secret;

/// Creates a secret, or gives it a new value.
pub(crate) async fn upsert(
    call: Call<Member, NoQuery, Wish<Secret>>,
) -> Result<Reply<Secret>, Error> {
    let (context, wish) = (call.context(), call.body.0.clone());
    call.once(move |tx| match context.find(tx, KindName::Secret, &[], &wish.name)? {
        None => engine::create(&context, tx, &[], wish.clone()),
        Some(_) => {
            engine::replace(&context, tx, &[], &wish.name, wish.clone()).map(|shown| shown.object)
        }
    })
    .await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct NameQuery {
    /// Name of the secret. Required.
    pub name: Option<String>,
}

/// Removes the secret named in the query, because some names do not fit in a path.
pub(crate) async fn remove_by_query(call: Call<Member, NameQuery>) -> Result<Reply<Secret>, Error> {
    let name = call.query.name.clone().ok_or(Malformed::Required("name"))?;
    let context = call.context();
    let work = move |tx: &mut Tx<'_>| engine::remove::<Secret>(&context, tx, &[], &name);
    Ok(Reply::of(&call.app.store.write(work).await?))
}
