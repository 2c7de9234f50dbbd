//! Images of the workspace registry, one per repository. Builds and pushes will make them.

use crate::context::Context;
use crate::engine::{self, Held, Managed, Paging, Secrets};
use crate::error::{Absent, Error, Unfit};
use crate::json;
use serde_json::Value;
use store::{Tx, image_rights};
use types::kinds::image::{ImageMetadata, ImageSpec, ImageTag};
use types::kinds::{Agent, Application, Function, Image, Job, Sandbox};
use types::parts::Lifecycle;
use types::wire::CleanedImages;

impl Managed for Image {
    const PAGING: Paging = Paging::Bare;

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(&mut state.lifecycle)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        if !held.state.shares.is_empty() {
            return Err(Unfit::ImageShared.into());
        }
        match deployed(context, tx)?.iter().find(|reference| is_of(reference, held, None)) {
            Some(reference) => Err(Unfit::ImageDeployed { reference: reference.clone() }.into()),
            None => Ok(()),
        }
    }
}

/// Image references of all workloads of the workspace.
fn deployed(context: &Context, tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    fn of<K: Managed>(
        context: &Context,
        tx: &mut Tx<'_>,
        found: &mut Vec<String>,
    ) -> Result<(), Error> {
        for object in engine::everywhere::<K>(context, tx)? {
            let wish = json::value(&object);
            let places = [wish.pointer("/spec/runtime/image"), wish.pointer("/spec/image")];
            found.extend(places.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        }
        Ok(())
    }
    let mut found = Vec::new();
    of::<Agent>(context, tx, &mut found)?;
    of::<Application>(context, tx, &mut found)?;
    of::<Function>(context, tx, &mut found)?;
    of::<Job>(context, tx, &mut found)?;
    of::<Sandbox>(context, tx, &mut found)?;
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

/// Published clients write `_` when they do not know for which kind of workload an image is.
pub fn any_type(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
) -> Result<Vec<String>, Error> {
    if parents.first().map(String::as_str) != Some("_") {
        return Ok(parents.to_vec());
    }
    let all = engine::everywhere::<Image>(context, tx)?;
    let found = all.into_iter().find(|image| image.metadata.name.as_deref() == Some(name));
    Ok(vec![found.and_then(|image| image.metadata.resource_type).unwrap_or_else(|| "_".into())])
}

/// What a tag is put on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagContent {
    pub digest: String,
    pub size_bytes: u64,
}

/// Puts a tag on an image of the workspace, in a repository that is made when there is none, and
/// lets the workspace run it under the reference that this answers.
pub fn put_tag(
    context: &Context,
    tx: &mut Tx<'_>,
    resource_type: &str,
    name: &str,
    tag: &str,
    content: &TagContent,
) -> Result<String, Error> {
    let parents = [resource_type.to_owned()];
    if Held::<Image>::find(context, tx, &parents, name)?.is_none() {
        let metadata = ImageMetadata {
            name: Some(name.to_owned()),
            resource_type: Some(resource_type.to_owned()),
            ..ImageMetadata::default()
        };
        engine::create(context, tx, &parents, Image { metadata, spec: ImageSpec::default() })?;
    }
    let held = Held::<Image>::lock(context, tx, &parents, name)?;
    let (mut state, now) = (held.state.clone(), context.world().now());
    let size = i64::try_from(content.size_bytes).unwrap_or(i64::MAX);
    let before = state.tags.iter().find(|known| known.name.as_deref() == Some(tag));
    let created_at = before.and_then(|known| known.created_at).or(Some(now));
    state.tags.retain(|known| known.name.as_deref() != Some(tag));
    state.tags.push(ImageTag {
        name: Some(tag.to_owned()),
        created_at,
        updated_at: Some(now),
        size: Some(size),
    });
    state.size = Some(state.tags.iter().filter_map(|tag| tag.size).sum());
    engine::change_state(context, tx, held, state)?;
    let reference = format!("{resource_type}/{name}:{tag}");
    image_rights::grant(tx, &context.member.workspace, &reference, &content.digest)?;
    Ok(reference)
}

/// Removes one tag of a repository.
pub fn without_tag(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    tag: &str,
) -> Result<Image, Error> {
    let held = Held::<Image>::lock(context, tx, parents, name)?;
    let mut state = held.state.clone();
    state.tags.retain(|kept| kept.name.as_deref() != Some(tag));
    if state.tags.len() == held.state.tags.len() {
        return Err(Absent::ImageTag { tag: tag.to_owned() }.into());
    }
    if deployed(context, tx)?.iter().any(|reference| is_of(reference, &held, Some(tag))) {
        return Err(Unfit::TagDeployed { tag: tag.to_owned() }.into());
    }
    let held = engine::change_state(context, tx, held, state)?;
    engine::present(context, tx, &held, &Secrets::Masked)
}

/// Removes every image that nothing runs and nobody shares.
pub fn clean_up(context: &Context, tx: &mut Tx<'_>) -> Result<CleanedImages, Error> {
    let used = deployed(context, tx)?;
    let mut deleted = 0;
    for image in engine::everywhere::<Image>(context, tx)? {
        let parents = [image.metadata.resource_type.unwrap_or_default()];
        let name = image.metadata.name.unwrap_or_default();
        let held = Held::<Image>::lock(context, tx, &parents, &name)?;
        let unused = !used.iter().any(|reference| is_of(reference, &held, None));
        if held.state.shares.is_empty() && unused {
            store::resources::delete(tx, &held.row, context.actor())?;
            deleted += 1;
        }
    }
    let message = format!("{deleted} unused images are removed");
    Ok(CleanedImages { deleted, message })
}
