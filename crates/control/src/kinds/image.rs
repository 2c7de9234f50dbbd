//! Images of the workspace registry, one row for each repository. Builds, pushes and pulls give
//! them tags. A tag is also the right to run the image, which is written in the same transaction.

mod deployed;
mod tags;

pub use deployed::Deployed;
pub use tags::{TagQuery, tags};

use super::image_share;
use crate::billing;
use crate::context::Context;
use crate::engine::{self, Held, Managed, Paging, Secrets};
use crate::error::{Absent, Error, Unfit};
use crate::usage;
use std::collections::BTreeMap;
use store::identity::workspaces;
use store::resources::Stored;
use store::{Tx, image_rights, resources};
use types::kinds::Image;
use types::kinds::image::{ImageMetadata, ImageSpec, ImageTag, State};
use types::own_image::{BadImageName, ImageAt, OwnImage, OwnRepository};
use types::parts::{Lifecycle, Status};
use types::{KindName, Problems};

/// How many characters of a digest an event shows.
const SHOWN: usize = 19;
/// Images that one transaction looks at when unused ones are removed.
const CLEANED_AT_ONCE: i64 = 50;

impl Managed for Image {
    const PAGING: Paging = Paging::Bare;

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(&mut state.lifecycle)
    }

    /// What runs is for [`remove`] to check, outside of the transaction.
    fn require_unused(_: &Context, _: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        require_unshared(held)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        image_share::withdraw(context, tx, held)?;
        let_go(context, tx, held)
    }
}

/// What a tag stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagContent {
    /// The digest of the manifest.
    pub digest: String,
    pub size_bytes: u64,
}

/// Sets a tag of a repository, and gives the workspace the right to run the image. Creates the row
/// if it is the repository's first tag. Returns the reference by which workloads name the image.
pub fn put_tag(
    context: &Context,
    tx: &mut Tx<'_>,
    resource_type: &str,
    name: &str,
    tag: &str,
    content: &TagContent,
) -> Result<String, Error> {
    let repository = OwnRepository::new(resource_type, name).map_err(bad("name"))?;
    let reference = repository.tagged(tag).map_err(bad("tag"))?;
    let by_digest = repository.with_digest(&content.digest).map_err(bad("digest"))?;
    let held = lock_or_make(context, tx, &repository)?;
    if let Some(owner) = &held.state.source_workspace {
        return Err(Unfit::ImageKeptElsewhere { owner: owner.clone() }.into());
    }
    let max = context.control.settings.registry.tags_max;
    let mut state = held.state.clone();
    set_tag(&mut state, tag, content, context);
    if state.tags.len() > max {
        return Err(Unfit::ManyTags { max }.into());
    }
    let workspace = &context.member.workspace;
    image_rights::grant(tx, workspace, &reference.to_string(), &content.digest)?;
    image_rights::grant(tx, workspace, &by_digest.to_string(), &content.digest)?;
    write(context, tx, held, state)?;
    Ok(reference.to_string())
}

/// Like [`put_tag`] for a caller who asks for it now, and refused if the budget is spent.
pub(crate) fn push_tag(
    context: &Context,
    tx: &mut Tx<'_>,
    (repository, tag): (&OwnRepository, &str),
    content: &TagContent,
) -> Result<String, Error> {
    billing::allow(context, tx)?;
    put_tag(context, tx, repository.resource_type(), repository.name(), tag, content)
}

fn bad(field: &'static str) -> impl FnOnce(BadImageName) -> Problems {
    move |why| Problems::one(field, why.to_string())
}

/// Locks the image of a repository, which is created if there is none.
pub(crate) fn lock_or_make(
    context: &Context,
    tx: &mut Tx<'_>,
    repository: &OwnRepository,
) -> Result<Held<Image>, Error> {
    let parents = [repository.resource_type().to_owned()];
    if context.find(tx, KindName::Image, &parents, repository.name())?.is_none() {
        let metadata = ImageMetadata {
            name: Some(repository.name().to_owned()),
            resource_type: Some(repository.resource_type().to_owned()),
            ..ImageMetadata::default()
        };
        let image = Image { metadata, spec: ImageSpec::default() };
        engine::create(context, tx, &parents, image)?;
    }
    Held::lock(context, tx, &parents, repository.name())
}

fn set_tag(state: &mut State, tag: &str, content: &TagContent, context: &Context) {
    let now = context.world().now();
    let size = i64::try_from(content.size_bytes).unwrap_or(i64::MAX);
    let before = state.tags.iter().position(|known| known.name.as_deref() == Some(tag));
    let before = before.map(|at| state.tags.remove(at));
    state.tags.push(ImageTag {
        name: Some(tag.to_owned()),
        created_at: before.and_then(|before| before.created_at).or(Some(now)),
        updated_at: Some(now),
        size: Some(size),
    });
    state.digests.insert(tag.to_owned(), content.digest.clone());
    let shown: String = content.digest.chars().take(SHOWN).collect();
    state.lifecycle.record("image", Status::Built, format!("`{tag}` is {shown}"), now);
}

/// Writes the state of a repository with its consequences: its size, what is billed, and the copies
/// in workspaces it is shared with.
fn write(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<Image>,
    mut state: State,
) -> Result<Held<Image>, Error> {
    let bytes = bytes(&state);
    state.size = Some(i64::try_from(bytes).unwrap_or(i64::MAX));
    let held = engine::change_state(context, tx, held, state)?;
    if held.state.source_workspace.is_none() {
        usage::store_image(context, tx, &held.row, bytes, held.row.version.unsigned_abs())?;
        image_share::propagate(context, tx, &held)?;
    }
    Ok(held)
}

/// Returns the size of all tags, counting each image once.
fn bytes(state: &State) -> u64 {
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for tag in &state.tags {
        let name = tag.name.as_deref().unwrap_or_default();
        let image = state.digests.get(name).map_or(name, String::as_str);
        sizes.insert(image, tag.size.unwrap_or(0).unsigned_abs());
    }
    sizes.values().fold(0, |sum, size| sum.saturating_add(*size))
}

/// Takes back everything that follows from an image whose row is being deleted.
pub(super) fn let_go(context: &Context, tx: &mut Tx<'_>, held: &Held<Image>) -> Result<(), Error> {
    image_rights::revoke_repository(tx, &held.row.workspace, &repository(held))?;
    if held.state.source_workspace.is_none() {
        usage::store_image(context, tx, &held.row, 0, held.row.version.unsigned_abs() + 1)?;
    }
    Ok(())
}

fn repository(held: &Held<Image>) -> String {
    held.row.path()
}

fn require_unshared(held: &Held<Image>) -> Result<(), Error> {
    if held.state.shares.is_empty() { Ok(()) } else { Err(Unfit::ImageShared.into()) }
}

/// Removes a repository, unless something runs one of its images.
pub fn remove(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    mut deployed: Deployed,
) -> Result<Image, Error> {
    let held = Held::<Image>::lock(context, tx, parents, name)?;
    require_unshared(&held)?;
    deployed.catch_up(context, tx)?;
    if let Some(reference) = deployed.of(&repository(&held)).next() {
        return Err(Unfit::ImageDeployed { reference: reference.clone() }.into());
    }
    engine::remove::<Image>(context, tx, parents, name)
}

/// Checks whether a reference such as `agent/name:tag` means this repository (and this tag).
fn is_of(reference: &str, repository: &str, tag: Option<&str>) -> bool {
    match (reference.strip_prefix(repository), tag) {
        (Some(""), tag) => tag.is_none_or(|tag| tag == "latest"),
        (Some(rest), None) => rest.starts_with(':') || rest.starts_with('@'),
        (Some(rest), Some(tag)) => rest.strip_prefix(':') == Some(tag),
        (None, _) => false,
    }
}

/// Returns the parents to use for an image. Published clients write `_` if they do not know the
/// kind of workload that it is for.
pub fn any_type(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
) -> Result<Vec<String>, Error> {
    match parents.first().map(String::as_str) {
        Some("_") => {}
        Some("application") => return Ok(vec!["app".to_owned()]),
        _ => return Ok(parents.to_vec()),
    }
    let found = resources::named(tx, &context.member.workspace, KindName::Image, name)?;
    Ok(vec![found.into_iter().next().map_or_else(|| "_".into(), |image| image.parent)])
}

/// Returns all repositories of a workspace, such as `agent/bot`.
pub fn repositories(context: &Context, tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    let mut all = Vec::new();
    engine::for_each(context, tx, |_, image: Held<Image>| {
        all.push(repository(&image));
        Ok(())
    })?;
    Ok(all)
}

/// Removes one tag of a repository.
pub fn without_tag(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    tag: &str,
    deployed: &mut Deployed,
) -> Result<Image, Error> {
    let held = Held::<Image>::lock(context, tx, parents, name)?;
    if !held.state.tags.iter().any(|known| known.name.as_deref() == Some(tag)) {
        return Err(Absent::ImageTag { tag: tag.to_owned() }.into());
    }
    require_unshared(&held)?;
    let repository = repository(&held);
    deployed.catch_up(context, tx)?;
    if deployed.of(&repository).any(|reference| is_of(reference, &repository, Some(tag))) {
        return Err(Unfit::TagDeployed { tag: tag.to_owned() }.into());
    }
    let held = drop_tags(context, tx, held, &[tag.to_owned()])?;
    engine::present(context, tx, &held, &Secrets::Masked)
}

/// Removes a tag, or all tags of a manifest, with the checks of [`without_tag`]. Returns the
/// digests that lost a tag.
pub(crate) fn without(
    context: &Context,
    tx: &mut Tx<'_>,
    repository: &OwnRepository,
    at: &ImageAt,
    mut deployed: Deployed,
) -> Result<Vec<String>, Error> {
    let Some(found) = find(context, tx, repository)? else { return Ok(Vec::new()) };
    if let Some(owner) = &found.state.source_workspace {
        return Err(Unfit::ImageKeptElsewhere { owner: owner.clone() }.into());
    }
    let (tags, digest) = match at {
        ImageAt::Tag(tag) => (vec![tag.clone()], found.digest(tag).cloned()),
        ImageAt::Digest(digest) => (found.tags_of(digest), Some(digest.clone())),
    };
    let parents = [repository.resource_type().to_owned()];
    if let ImageAt::Digest(digest) = at {
        let pinned = format!("{repository}@{digest}");
        // Or something could begin to run it after that was looked at.
        Held::<Image>::lock(context, tx, &parents, repository.name())?;
        deployed.catch_up(context, tx)?;
        if deployed.of(&repository.to_string()).any(|reference| *reference == pinned) {
            return Err(Unfit::ImageDeployed { reference: pinned }.into());
        }
    }
    let Some(digest) = digest.filter(|_| !tags.is_empty()) else { return Ok(Vec::new()) };
    for tag in &tags {
        without_tag(context, tx, &parents, repository.name(), tag, &mut deployed)?;
    }
    Ok(vec![digest])
}

/// Removes tags that nothing uses.
fn drop_tags(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<Image>,
    tags: &[String],
) -> Result<Held<Image>, Error> {
    let mut state = held.state.clone();
    let repository = repository(&held);
    for tag in tags {
        state.tags.retain(|kept| kept.name.as_deref() != Some(tag.as_str()));
        state.digests.remove(tag);
        image_rights::revoke(tx, &held.row.workspace, &format!("{repository}:{tag}"))?;
    }
    write(context, tx, held, state)
}

/// What a removed image leaves in the registry.
pub struct Left {
    pub repository: OwnRepository,
    /// The digests that had tags.
    pub digests: Vec<String>,
}

/// What one transaction of a clean-up has done.
pub struct Cleaned {
    pub deleted: i64,
    pub left: Vec<Left>,
    /// The last image it looked at, to go on after; `None` if there are no more.
    pub last: Option<Stored>,
}

/// Removes those of the next images that nothing runs and that are not shared.
pub fn clean_up(
    context: &Context,
    tx: &mut Tx<'_>,
    deployed: &mut Deployed,
    after: Option<&Stored>,
) -> Result<Cleaned, Error> {
    let workspace = &context.member.workspace;
    let rows = resources::walk(tx, workspace, KindName::Image, after, CLEANED_AT_ONCE)?;
    let mut cleaned = Cleaned { deleted: 0, left: Vec::new(), last: rows.last().cloned() };
    let lock = |row: Stored| {
        Held::<Image>::lock(context, tx, std::slice::from_ref(&row.parent), &row.name)
    };
    let locked = rows.into_iter().map(lock).collect::<Result<Vec<_>, _>>()?;
    // After that, or something could begin to run one of them in between.
    deployed.catch_up(context, tx)?;
    for held in locked {
        if held.state.shares.is_empty() && deployed.of(&repository(&held)).next().is_none() {
            let_go(context, tx, &held)?;
            resources::delete(tx, &held.row, context.actor())?;
            cleaned.deleted += 1;
            if let Ok(repository) = repository(&held).parse()
                && held.state.source_workspace.is_none()
            {
                let digests = held.state.digests.into_values().collect();
                cleaned.left.push(Left { repository, digests });
            }
        }
    }
    Ok(cleaned)
}

/// Checks whether [`trim`] has tags to look at.
pub(crate) fn is_over(held: &Held<Image>, keep: usize) -> bool {
    let owned = held.state.source_workspace.is_none() && held.state.shares.is_empty();
    keep > 0 && held.state.tags.len() > keep && owned
}

/// Removes the oldest unused tags of a repository, except for the `keep` newest tags.
pub(crate) fn trim(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<Image>,
    keep: usize,
    deployed: &mut Deployed,
) -> Result<Held<Image>, Error> {
    if !is_over(&held, keep) {
        return Ok(held);
    }
    let repository = repository(&held);
    deployed.catch_up(context, tx)?;
    let is_used = |tag: &str| deployed.of(&repository).any(|it| is_of(it, &repository, Some(tag)));
    let mut tags = held.state.tags.clone();
    tags.sort_by_key(|tag| std::cmp::Reverse(tag.updated_at));
    let names = tags.into_iter().skip(keep).filter_map(|tag| tag.name);
    let doomed: Vec<String> = names.filter(|tag| !is_used(tag)).collect();
    if doomed.is_empty() { Ok(held) } else { drop_tags(context, tx, held, &doomed) }
}

/// Returns the digests of the manifests of a repository that must stay: those with tags, and those
/// that something runs, including in workspaces it is shared with.
pub(crate) fn needed(
    context: &Context,
    tx: &mut Tx<'_>,
    repository: &OwnRepository,
    mut deployed: Deployed,
) -> Result<Vec<String>, Error> {
    let name = repository.to_string();
    deployed.catch_up(context, tx)?;
    let mut references: Vec<String> = deployed.of(&name).cloned().collect();
    let mut digests = Vec::new();
    if let Some(held) = find(context, tx, repository)? {
        for share in &held.state.shares {
            if let Some(other) = workspaces::find_by_name(tx, &share.workspace)? {
                let there = Deployed::read(&context.in_workspace(&other), tx)?;
                references.extend(there.of(&name).cloned());
            }
        }
        digests.extend(held.state.digests.into_values());
    }
    for image in references.iter().filter_map(|reference| reference.parse::<OwnImage>().ok()) {
        if let ImageAt::Digest(digest) = image.at() {
            digests.push(digest.clone());
        }
    }
    Ok(digests)
}

/// What the registry protocol sees of an image.
impl Held<Image> {
    /// Returns the digest that a tag stands for.
    pub fn digest(&self, tag: &str) -> Option<&String> {
        self.state.digests.get(tag)
    }

    /// Returns all tags in order.
    pub fn tags(&self) -> impl Iterator<Item = &String> {
        self.state.digests.keys()
    }

    /// Returns the tags of a manifest.
    pub fn tags_of(&self, digest: &str) -> Vec<String> {
        let all = self.state.digests.iter();
        all.filter(|(_, known)| *known == digest).map(|(tag, _)| tag.clone()).collect()
    }
}

/// Finds the image of a repository, if the repository has tags or once had some.
pub fn find(
    context: &Context,
    tx: &mut Tx<'_>,
    repository: &OwnRepository,
) -> Result<Option<Held<Image>>, Error> {
    let parents = [repository.resource_type().to_owned()];
    Held::find(context, tx, &parents, repository.name())
}
