//! Images of the workspace registry.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::query::{Flag, NoQuery};
use crate::http::reply::Reply;
use crate::routes::uploads;
use auth::Member;
use control::Missing;
use control::builds;
use control::engine::{self, Secrets};
use control::kinds::image;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::kinds::Image;
use types::wire::{CleanedImages, CreateImageAnswer, CreateImageRequest};

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<Image>>, Error> {
    super::egress::all::<Image>(call).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CreateQuery {
    /// Asks for an address to upload sources to, from which the image is built.
    #[serde(default)]
    pub upload: Flag,
    /// Registers the given image as it is.
    #[serde(default, rename = "skip-build")]
    pub skip_build: Flag,
}

pub(crate) async fn create(
    call: Call<Member, CreateQuery, Body<CreateImageRequest>>,
) -> Result<Reply<CreateImageAnswer>, Error> {
    let given = call.body.0.image.as_deref().is_some_and(|image| !image.is_empty());
    if call.query.skip_build.0 && !given {
        return Err(Malformed::ImageRequired.into());
    }
    if call.query.skip_build.0 || (given && !call.query.upload.0) {
        return Err(control::Error::Missing(Missing::RegisterImage).into());
    }
    let (context, request) = (call.context(), call.body.0.clone());
    uploads::asked(&call, move |tx| builds::image(&context, tx, &request)).await
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<Image>, Error> {
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let parents = image::any_type(&context, tx, &parents, &name)?;
        engine::get::<Image>(&context, tx, &parents, &name, &Secrets::Masked)
    };
    Ok(call.app.store.read(work).await?.into())
}

/// Removes a repository; the command line writes `name:tag` for one tag of it.
pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<Image>, Error> {
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| match name.split_once(':') {
        Some((name, tag)) => image::without_tag(&context, tx, &parents, name, tag),
        None => engine::remove::<Image>(&context, tx, &parents, &name),
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn remove_tag(call: Call<Member, NoQuery>) -> Result<Reply<Image>, Error> {
    let (context, kind) = (call.context(), [call.path.at(0).to_owned()]);
    let (name, tag) = (call.path.at(1).to_owned(), call.path.at(2).to_owned());
    let work = move |tx: &mut Tx<'_>| image::without_tag(&context, tx, &kind, &name, &tag);
    Ok(Reply::of(&call.app.store.write(work).await?))
}

/// Removes every image that nothing runs and nobody shares.
pub(crate) async fn clean_up(call: Call<Member>) -> Result<Reply<CleanedImages>, Error> {
    let context = call.context();
    Ok(Reply::of(&call.app.store.write(move |tx| image::clean_up(&context, tx)).await?))
}
