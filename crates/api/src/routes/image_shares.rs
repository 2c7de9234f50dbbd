//! Sharing of images between workspaces.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::query::{Flag, NoQuery};
use crate::http::reply::{NowOrLater, Reply, Silent};
use auth::Member;
use control::engine::Held;
use control::idempotency::{JsonAnswer, kept_answer, once};
use control::kinds::image_share::{self as shares, Direction, Shared};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::kinds::{Image, ImageShare};
use types::wire::{ImageShareRequest, ImageShareTarget, PendingImageShareRender};

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<ImageShareTarget>>, Error> {
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| Held::<Image>::get(&context, tx, &parents, &name);
    Ok(Reply::of(&call.app.store.read(work).await?.state.shares))
}

pub(crate) async fn share(
    call: Call<Member, NoQuery, Body<ImageShareRequest>>,
) -> Result<NowOrLater<Image, ImageShare>, Error> {
    call.who.admin()?;
    let (context, parents, name, asked) =
        (call.context(), call.path.parents(), call.path.name().to_owned(), call.body.0);
    let work = move |tx: &mut Tx<'_>| shares::share(&context, tx, &parents, &name, &asked);
    let JsonAnswer { body, replayed } = once(&call.app.store, call.key, work).await?;
    let shared: Shared = kept_answer(&body)?;
    Ok(match shared {
        Shared::Done(image) => NowOrLater::Now(Reply::written(image.into()).marked(replayed)),
        Shared::Offered(pending) => {
            NowOrLater::Later(Reply::written(pending.into()).marked(replayed))
        }
    })
}

pub(crate) async fn unshare(call: Call<Member>) -> Result<Reply<Image>, Error> {
    call.who.admin()?;
    let (context, kind) = (call.context(), [call.path.at(0).to_owned()]);
    let (name, target) = (call.path.at(1).to_owned(), call.path.at(2).to_owned());
    let work = move |tx: &mut Tx<'_>| shares::unshare(&context, tx, &kind, &name, &target);
    Ok(Reply::of(&call.app.store.write(work).await?))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct PendingQuery {
    /// Direction of the shares. Default: both.
    pub direction: Option<Direction>,
}

pub(crate) async fn pending(
    call: Call<Member, PendingQuery>,
) -> Result<Reply<Vec<PendingImageShareRender>>, Error> {
    let (context, direction) = (call.context(), call.query.direction);
    let found = call.app.store.read(move |tx| shares::pending(&context, tx, direction)).await?;
    Ok(Reply::of(&found))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct AcceptQuery {
    /// Whether to replace an image of the same name.
    #[serde(default)]
    pub force: Flag,
}

pub(crate) async fn accept(call: Call<Member, AcceptQuery>) -> Result<Reply<Image>, Error> {
    call.who.admin()?;
    let (context, id, force) = (call.context(), call.path.name().to_owned(), call.query.force.0);
    call.once(move |tx| shares::accept(&context, tx, &id, force)).await
}

pub(crate) async fn decline(call: Call<Member>) -> Result<Silent, Error> {
    call.who.admin()?;
    let (context, id) = (call.context(), call.path.name().to_owned());
    call.once(move |tx| shares::decline(&context, tx, &id)).await?;
    Ok(Silent)
}
