//! Images of the workspace registry, one per repository. Builds and pushes will make them.

use crate::call::{Body, Call};
use crate::engine::{self, Desk, Held, Managed, Paging, Secrets};
use crate::error::Error;
use crate::missing::Missing;
use crate::query::{Flag, NoQuery};
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use store::Tx;
use types::kinds::{Agent, Application, Function, Image, Job, Sandbox};
use types::wire::{CleanedImages, CreateImageAnswer, CreateImageRequest};

impl Managed for Image {
    const PAGING: Paging = Paging::Bare;

    fn release(desk: &Desk, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        if !held.state.shares.is_empty() {
            return Err(Error::Malformed("the image is shared; take the shares back first".into()));
        }
        match deployed(desk, tx)?.iter().find(|reference| is_of(reference, held, None)) {
            Some(reference) => Err(Error::Malformed(format!(
                "the image is deployed as `{reference}`; remove what runs it first"
            ))),
            None => Ok(()),
        }
    }
}

/// Image references of all workloads of the workspace.
fn deployed(desk: &Desk, tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    fn of<K: Managed>(desk: &Desk, tx: &mut Tx<'_>, found: &mut Vec<String>) -> Result<(), Error> {
        for object in engine::everywhere::<K>(desk, tx)? {
            let wish = serde_json::to_value(object).unwrap_or_default();
            let places = [wish.pointer("/spec/runtime/image"), wish.pointer("/spec/image")];
            found.extend(places.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        }
        Ok(())
    }
    let mut found = Vec::new();
    of::<Agent>(desk, tx, &mut found)?;
    of::<Application>(desk, tx, &mut found)?;
    of::<Function>(desk, tx, &mut found)?;
    of::<Job>(desk, tx, &mut found)?;
    of::<Sandbox>(desk, tx, &mut found)?;
    Ok(found)
}

/// Whether a reference such as `agent/name:tag` means this repository (and this tag).
fn is_of(reference: &str, held: &Held<Image>, tag: Option<&str>) -> bool {
    let repository = format!("{}/{}", held.row.parent, held.row.name);
    match (reference.strip_prefix(&repository), tag) {
        (Some(""), None) => true,
        (Some(rest), None) => rest.starts_with(':') || rest.starts_with('@'),
        (Some(rest), Some(tag)) => rest.strip_prefix(':') == Some(tag),
        (None, _) => false,
    }
}

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
        return Err(Error::Malformed("`image` is required with `skip-build=true`".into()));
    }
    let registers = given && !call.query.upload.0;
    Err(Error::Missing(if registers { Missing::RegisterImage } else { Missing::Build }))
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<Image>, Error> {
    let (desk, mut parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let kind = any_type(&desk, tx, &parents, &name)?;
        parents = kind;
        engine::get::<Image>(&desk, tx, &parents, &name, &Secrets::Masked)
    };
    Ok(call.app.store.read(work).await?.into())
}

/// Published clients write `_` when they do not know for which kind of workload an image is.
fn any_type(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
) -> Result<Vec<String>, Error> {
    if parents.first().map(String::as_str) != Some("_") {
        return Ok(parents.to_vec());
    }
    let all = engine::everywhere::<Image>(desk, tx)?;
    let found = all.into_iter().find(|image| image.metadata.name.as_deref() == Some(name));
    Ok(vec![found.and_then(|image| image.metadata.resource_type).unwrap_or_else(|| "_".into())])
}

/// Removes a repository; the command line writes `name:tag` for one tag of it.
pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<Image>, Error> {
    let (desk, parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| match name.split_once(':') {
        Some((name, tag)) => without_tag(&desk, tx, &parents, name, tag),
        None => engine::remove::<Image>(&desk, tx, &parents, &name),
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn remove_tag(call: Call<Member, NoQuery>) -> Result<Reply<Image>, Error> {
    let (desk, path) = (call.desk(), call.path.all());
    let work = move |tx: &mut Tx<'_>| match path.as_slice() {
        [kind, name, tag] => without_tag(&desk, tx, std::slice::from_ref(kind), name, tag),
        _ => Err(Error::NoRoute),
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

fn without_tag(
    desk: &Desk,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    tag: &str,
) -> Result<Image, Error> {
    let held = Held::<Image>::lock(desk, tx, parents, name)?;
    let mut state = held.state.clone();
    state.tags.retain(|kept| kept.name.as_deref() != Some(tag));
    if state.tags.len() == held.state.tags.len() {
        return Err(Error::NotFound(format!("the image has no tag `{tag}`")));
    }
    if deployed(desk, tx)?.iter().any(|reference| is_of(reference, &held, Some(tag))) {
        return Err(Error::Malformed(format!(
            "the tag `{tag}` is deployed; remove what runs it first"
        )));
    }
    let held = engine::change_state(desk, tx, held, state)?;
    engine::present(desk, tx, &held, &Secrets::Masked)
}

/// Removes every image that nothing runs and nobody shares.
pub(crate) async fn clean_up(call: Call<Member>) -> Result<Reply<CleanedImages>, Error> {
    let desk = call.desk();
    let work = move |tx: &mut Tx<'_>| {
        let used = deployed(&desk, tx)?;
        let mut deleted = 0;
        for image in engine::everywhere::<Image>(&desk, tx)? {
            let parents = [image.metadata.resource_type.unwrap_or_default()];
            let held =
                Held::<Image>::lock(&desk, tx, &parents, &image.metadata.name.unwrap_or_default())?;
            if held.state.shares.is_empty()
                && !used.iter().any(|reference| is_of(reference, &held, None))
            {
                store::resources::delete(tx, &held.row, desk.actor())?;
                deleted += 1;
            }
        }
        Ok::<_, Error>(CleanedImages {
            deleted,
            message: format!("{deleted} unused images are removed"),
        })
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}
