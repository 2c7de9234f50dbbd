//! Previews of sandboxes, and the tokens for access to private ones.

use crate::http::call::{Call, Wish};
use crate::http::error::Error;
use crate::http::query::Flag;
use crate::http::reply::Reply;
use auth::Member;
use control::engine;
use control::kinds::{preview, preview_token};
use schemars::JsonSchema;
use serde::Deserialize;
use types::kinds::Preview;
use types::wire::Message;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Force {
    /// Whether to take the address over from the preview that has it.
    #[serde(default)]
    pub force: Flag,
}

/// Creates a preview. Its host must be free, unless the caller takes it over.
pub(crate) async fn create(
    call: Call<Member, Force, Wish<Preview>>,
) -> Result<Reply<Preview>, Error> {
    let (context, parents, wish, force) =
        (call.context(), call.path.all(), call.body.0.clone(), call.query.force.0);
    call.once(move |tx| {
        if force {
            preview::vacate(&context, tx, &wish)?;
        }
        engine::create(&context, tx, &parents, wish.clone())
    })
    .await
}

/// Revokes the token given by its value, or all tokens with a name: names may be generated from a
/// clock, so two callers may have used the same one.
pub(crate) async fn revoke_token(call: Call<Member>) -> Result<Reply<Message>, Error> {
    let (context, parents, called) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut store::Tx<'_>| preview_token::revoke(&context, tx, &parents, &called);
    call.app.store.write(work).await?;
    Ok(Reply::of(&Message { message: "the token opens nothing any more".into() }))
}
