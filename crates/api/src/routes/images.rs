//! Images of the workspace registry.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::query::{Flag, ListQuery, NameSort, NoQuery};
use crate::http::reply::Reply;
use crate::routes::uploads;
use auth::Member;
use control::builds;
use control::engine::{self, Held, Page, Secrets};
use control::kinds::image::{self, Deployed};
use control::repositories;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::kinds::Image;
use types::kinds::image::ImageTag;
use types::own_image::OwnRepository;
use types::wire::{CleanedImages, CreateImageAnswer, CreateImageRequest};

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<Image>>, Error> {
    super::resources::everywhere::<Image>(call).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CreateQuery {
    /// Whether to ask for an upload address; the image is then built from the uploaded sources.
    #[serde(default)]
    pub upload: Flag,
    /// Whether to register the given image without building it.
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
    if !given || call.query.upload.0 {
        let (context, request) = (call.context(), call.body.0.clone());
        return uploads::asked(&call, move |tx| builds::image(&context, tx, &request)).await;
    }
    // Another registry may be slow; the limits of pulls apply.
    call.long.announce();
    let (context, wish, key) = (call.context(), call.body.0, call.key);
    // If the caller disconnects, the image is still registered completely.
    let registered = tokio::spawn(async move { repositories::register(&context, wish, key).await });
    let interrupted = |_| Err(control::Error::NoRoom("the server is about to end".to_owned()));
    Ok(registered.await.unwrap_or_else(interrupted)?.into())
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

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TagsQuery {
    /// Tags of a page, at most 200: more counts as 200.
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Where to continue: `meta.nextCursor` of the previous page.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: NameSort,
    /// How the names begin, ignoring case.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
    /// The exact name.
    #[schemars(length(max = 200))]
    pub name: Option<String>,
    /// The workspace that the repository came from, if it is shared by another one.
    pub source_workspace: Option<String>,
}

/// Lists the tags of a repository, by name.
pub(crate) async fn tags(call: Call<Member, TagsQuery>) -> Result<Reply<Page<ImageTag>>, Error> {
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let TagsQuery { limit, cursor, sort, q, name: exact, source_workspace } = call.query.clone();
    let asked = image::TagQuery {
        list: ListQuery { limit, cursor, ..ListQuery::default() },
        sort,
        prefix: q,
        name: exact,
        source_workspace,
    };
    let work = move |tx: &mut Tx<'_>| image::tags(&context, tx, &parents, &name, &asked);
    Ok(Reply::of(&call.app.store.read(work).await?))
}

/// Removes a repository, or one tag: the command line writes the name as `name:tag`.
pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<Image>, Error> {
    let (kind, name) = (call.path.at(0).to_owned(), call.path.name().to_owned());
    match name.split_once(':') {
        Some((name, tag)) => removed(call, kind, name.to_owned(), Some(tag.to_owned())).await,
        None => removed(call, kind, name, None).await,
    }
}

pub(crate) async fn remove_tag(call: Call<Member, NoQuery>) -> Result<Reply<Image>, Error> {
    let (kind, name) = (call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let tag = call.path.at(2).to_owned();
    removed(call, kind, name, Some(tag)).await
}

/// Removes a tag or a whole repository, then frees what is no longer needed.
async fn removed(
    call: Call<Member>,
    kind: String,
    name: String,
    tag: Option<String>,
) -> Result<Reply<Image>, Error> {
    let (context, of, named) = (call.context(), call.context(), name.clone());
    let look = move |tx: &mut Tx<'_>| {
        let parents = image::any_type(&of, tx, std::slice::from_ref(&kind), &named)?;
        Held::<Image>::get(&of, tx, &parents, &named)?;
        Ok((parents, Deployed::read(&of, tx)?))
    };
    let (parents, deployed) = call.app.lists.read(call.who.workspace.as_str(), look).await?;
    let (of, known) = (call.context(), deployed.clone());
    let work = move |tx: &mut Tx<'_>| {
        let before = Held::<Image>::get(&of, tx, &parents, &name)?;
        let mut known = known.clone();
        let last = match &tag {
            Some(tag) => image::without_tag(&of, tx, &parents, &name, tag, &mut known)?,
            None => image::remove(&of, tx, &parents, &name, known)?,
        };
        Ok::<_, control::Error>((last, before))
    };
    let (last, before) = call.app.store.write(work).await?;
    let digests = before.state.digests.into_values().collect();
    // Content that another workspace shares is not in our repository.
    if before.state.source_workspace.is_none()
        && let Ok(repository) = before.row.path().parse::<OwnRepository>()
    {
        repositories::after_deletion(&context, &repository, digests, &deployed).await?;
    }
    Ok(Reply::of(&last))
}

/// Removes every image that nothing runs and nobody shares.
pub(crate) async fn clean_up(call: Call<Member>) -> Result<Reply<CleanedImages>, Error> {
    let (context, of) = (call.context(), call.context());
    let look = move |tx: &mut Tx<'_>| Deployed::read(&of, tx);
    let deployed = call.app.lists.read(call.who.workspace.as_str(), look).await?;
    Ok(Reply::of(&repositories::clean_up(&context, deployed).await?))
}
