//! The workspaces' own registry, its rows and its content together: pushing and pulling, taking
//! over images of other registries, and upkeep. Upkeep removes tags that the settings do not keep,
//! manifests without tags, and unfinished uploads. What something runs stays.

use crate::billing;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::{Error, Unfit};
use crate::idempotency::{JsonAnswer, RequestKey, earlier, once};
use crate::kinds::image::{self, Deployed, TagContent};
use crate::machine::{self, LaunchFault};
use crate::registry::{Keep, ManifestContent, Place, Registry, RegistryFault, TakenManifest};
use crate::workloads::rows;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use store::resources::Stored;
use store::{Tx, image_rights, resources};
use tokio_util::sync::CancellationToken;
use types::KindName;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::Image;
use types::own_image::{BadImageName, IMAGE_TYPES, ImageAt, OwnRepository};
use types::wire::{CleanedImages, CreateImageAnswer, CreateImageRequest};

/// Rows read at once.
const PAGE: i64 = 200;
/// Workspaces of which it is remembered which images they use.
const KNOWN_MAX: usize = 20;
const DEFAULT_TAG: &str = "latest";
const SANDBOX: &str = "sandbox";

pub(crate) async fn run(control: Control, ending: CancellationToken) {
    let Some(registry) = control.machine().and_then(|machine| machine.registry()) else { return };
    let every = control.settings.registry.every;
    while ending.run_until_cancelled(tokio::time::sleep(every)).await.is_some() {
        if let Err(error) = look_after(&control, &registry).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the registry could not be tidied; it is tried again"
            );
        }
    }
}

async fn look_after(control: &Control, registry: &Arc<dyn Registry>) -> Result<(), Error> {
    if control.settings.registry.keep_tags > 0 {
        trim_all(control).await?;
    }
    let mut known = Known::default();
    for place in registry.places().await.map_err(broken)? {
        let repository = place.repository.clone();
        let pruned = match known.of(control, &place.workspace).await {
            Ok(deployed) => prune(control, registry, place, Vec::new(), deployed).await,
            Err(error) => Err(error),
        };
        pruned.or_else(|error| set_aside(error, &repository))?;
    }
    registry.tidy().await.map_err(broken)
}

/// Removes the content of workspaces that were deleted, which would keep room from others. A
/// workspace that this database just does not have, such as another database's, is left to the
/// upkeep, which removes only what is old.
pub(crate) async fn clear_deleted(control: &Control) -> Result<(), Error> {
    let deleted = control.deleted_workspaces.lock().clone();
    let registry = control.machine().and_then(|machine| machine.registry());
    if let Some(registry) = registry.filter(|_| !deleted.is_empty()) {
        let places = registry.places().await.map_err(broken)?;
        for place in places.into_iter().filter(|place| deleted.contains(&place.workspace)) {
            let repository = place.repository.clone();
            let pruned = prune(control, &registry, place, Vec::new(), None).await;
            pruned.or_else(|error| set_aside(error, &repository))?;
        }
        registry.free_soon().await.map_err(broken)?;
    }
    control.deleted_workspaces.lock().retain(|workspace| !deleted.contains(workspace));
    Ok(())
}

/// Goes on with other repositories after an error that is about this one alone.
fn set_aside(error: Error, repository: &dyn std::fmt::Display) -> Result<(), Error> {
    if rows::may_pass(&error) {
        return Err(error);
    }
    tracing::error!(
        error = &error as &dyn std::error::Error,
        %repository,
        "a repository could not be tidied; it is tried again with the next round"
    );
    Ok(())
}

/// Which images workspaces use, for work on many repositories: reading that takes long.
#[derive(Default)]
struct Known(HashMap<WorkspaceId, Deployed>);

impl Known {
    /// Returns what a workspace uses now; nothing if the workspace is gone.
    async fn of(
        &mut self,
        control: &Control,
        workspace: &WorkspaceId,
    ) -> Result<Option<Deployed>, Error> {
        let (of, id, known) = (control.clone(), workspace.clone(), self.0.get(workspace).cloned());
        let read = move |tx: &mut Tx<'_>| {
            let Some((context, _)) = rows::context(&of, tx, &id)? else { return Ok(None) };
            let Some(mut known) = known.clone() else {
                return Deployed::read(&context, tx).map(Some);
            };
            known.catch_up(&context, tx)?;
            Ok(Some(known))
        };
        let Some(deployed) = control.store.read(read).await? else { return Ok(None) };
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        self.0.insert(workspace.clone(), deployed.clone());
        Ok(Some(deployed))
    }
}

async fn trim_all(control: &Control) -> Result<(), Error> {
    let keep = control.settings.registry.keep_tags;
    let (mut after, mut known): (Option<ResourceId>, _) = (None, Known::default());
    loop {
        let from = after.clone();
        let page = move |tx: &mut Tx<'_>| resources::scan(tx, KindName::Image, from.as_ref(), PAGE);
        let rows = control.store.read(page).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for row in rows {
            let name = row.path();
            let trimmed = trim_one(control, row, keep, &mut known).await;
            trimmed.or_else(|error| set_aside(error, &name))?;
        }
    }
}

async fn trim_one(
    control: &Control,
    row: Stored,
    keep: usize,
    known: &mut Known,
) -> Result<(), Error> {
    let held = Held::<Image>::read(row)?;
    if !image::is_over(&held, keep) {
        return Ok(());
    }
    let (of, row) = (control.clone(), held.row);
    let Some(deployed) = known.of(control, &row.workspace).await? else { return Ok(()) };
    let work = move |tx: &mut Tx<'_>| {
        let Some((context, _)) = rows::context(&of, tx, &row.workspace)? else {
            return Ok(());
        };
        let parents = [row.parent.clone()];
        if context.find(tx, KindName::Image, &parents, &row.name)?.is_none() {
            return Ok(());
        }
        let held = Held::<Image>::lock(&context, tx, &parents, &row.name)?;
        image::trim(&context, tx, held, keep, &mut deployed.clone()).map(drop)
    };
    control.store.write(work).await
}

/// Removes from a repository what nothing needs: manifests in `except` at once, the rest when it is
/// old. Also revokes the workspace's rights to images that are gone. `deployed` is nothing if the
/// workspace is gone.
async fn prune(
    control: &Control,
    registry: &Arc<dyn Registry>,
    place: Place,
    except: Vec<String>,
    deployed: Option<Deployed>,
) -> Result<(), Error> {
    let _turn = registry.turn(&place).await;
    let is_over = control.deleted_workspaces.lock().contains(&place.workspace);
    let (of, at) = (control.clone(), place.clone());
    let needed = move |tx: &mut Tx<'_>| match (rows::context(&of, tx, &at.workspace)?, &deployed) {
        (Some((context, _)), Some(deployed)) => {
            image::needed(&context, tx, &at.repository, deployed.clone())
        }
        _ => Ok(Vec::new()),
    };
    let manifests = control.store.read(needed).await?;
    let keep = Keep { manifests: manifests.clone(), except, is_over };
    let mut there = registry.prune(place.clone(), keep).await.map_err(broken)?;
    there.extend(manifests);
    let forget = move |tx: &mut Tx<'_>| {
        let repository = place.repository.to_string();
        for name in image_rights::of_repository(tx, &place.workspace, &repository)? {
            let digest = name.split_once('@').map(|(_, digest)| digest);
            if digest.is_some_and(|digest| !there.iter().any(|known| known == digest)) {
                image_rights::revoke(tx, &place.workspace, &name)?;
            }
        }
        Ok::<_, Error>(())
    };
    control.store.write(forget).await
}

/// Frees what a deletion has left, after its commit. `digests` are those that lost their tags.
pub async fn after_deletion(
    context: &Context,
    repository: &OwnRepository,
    digests: Vec<String>,
    deployed: &Deployed,
) -> Result<(), Error> {
    let control = &context.control;
    let Some(registry) = control.machine().and_then(|machine| machine.registry()) else {
        return Ok(());
    };
    let (workspace, repository) = (context.member.workspace.clone(), repository.clone());
    let place = Place { workspace, repository };
    prune(control, &registry, place, digests, Some(deployed.clone())).await?;
    registry.free_soon().await.map_err(broken)
}

/// Removes every image that nothing runs and that is not shared, some in each transaction.
pub async fn clean_up(context: &Context, mut deployed: Deployed) -> Result<CleanedImages, Error> {
    let (mut deleted, mut last) = (0, None);
    loop {
        let (of, known, after) = (context.clone(), deployed, last);
        let some = move |tx: &mut Tx<'_>| {
            let mut known = known.clone();
            let cleaned = image::clean_up(&of, tx, &mut known, after.as_ref())?;
            Ok::<_, Error>((cleaned, known))
        };
        let (cleaned, known) = context.control.store.write(some).await?;
        (deployed, last) = (known, cleaned.last);
        deleted += cleaned.deleted;
        for image::Left { repository, digests } in cleaned.left {
            after_deletion(context, &repository, digests, &deployed).await?;
        }
        if last.is_none() {
            break;
        }
    }
    Ok(CleanedImages { deleted, message: format!("{deleted} unused images are removed") })
}

/// A repository that a caller may read.
pub struct Located {
    /// Where the content is: for a shared image, the owner's repository.
    pub place: Place,
    /// `None` if the repository has no tags.
    pub image: Option<Held<Image>>,
}

impl Located {
    /// Whether the content belongs to another workspace, which alone may change it.
    pub fn is_shared(&self, context: &Context) -> bool {
        self.place.workspace != context.member.workspace
    }
}

pub fn locate(
    context: &Context,
    tx: &mut Tx<'_>,
    repository: &OwnRepository,
) -> Result<Located, Error> {
    let image = image::find(context, tx, repository)?;
    let owner = image.as_ref().and_then(|image| image.state.source_workspace_id.clone());
    let workspace = owner.unwrap_or_else(|| context.member.workspace.clone());
    Ok(Located { place: Place { workspace, repository: repository.clone() }, image })
}

/// Chooses the repository for callers who do not name the kind of workload: the existing one of
/// that name, or else one for sandboxes.
pub fn of_any_type(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
) -> Result<Result<OwnRepository, BadImageName>, Error> {
    for resource_type in IMAGE_TYPES {
        if let Ok(repository) = OwnRepository::new(resource_type, name)
            && image::find(context, tx, &repository)?.is_some()
        {
            return Ok(Ok(repository));
        }
    }
    Ok(OwnRepository::new(SANDBOX, name))
}

/// Returns a manifest by its tag or digest. An image that a build made becomes part of the
/// repository when it is first asked for, if it was not handed over before.
pub async fn manifest(
    registry: &dyn Registry,
    located: &Located,
    at: &ImageAt,
) -> Result<(String, ManifestContent), RegistryFault> {
    let image = located.image.as_ref();
    let digest = match at {
        ImageAt::Digest(digest) => Some(digest),
        ImageAt::Tag(tag) => image.and_then(|image| image.digest(tag)),
    };
    let digest = digest.ok_or(RegistryFault::NoManifest)?.clone();
    match registry.manifest(located.place.clone(), digest.clone()).await {
        Err(RegistryFault::NoManifest)
            if image.is_some_and(|image| !image.tags_of(&digest).is_empty()) =>
        {
            let adopted = registry.adopt(located.place.clone(), digest.clone()).await;
            adopted.map_err(|fault| match fault {
                RegistryFault::NoPart(_) => RegistryFault::Elsewhere,
                other => other,
            })?;
            let found = registry.manifest(located.place.clone(), digest.clone()).await?;
            Ok((digest, found))
        }
        found => Ok((digest, found?)),
    }
}

/// A manifest that is being pushed.
pub struct NewManifest {
    pub place: Place,
    pub at: ImageAt,
    /// As given in the request.
    pub media_type: Option<String>,
    pub bytes: Bytes,
}

/// Stores a manifest, and sets its tag if it was pushed with one.
pub async fn push(
    context: &Context,
    registry: &dyn Registry,
    new: NewManifest,
) -> Result<Result<TakenManifest, RegistryFault>, Error> {
    let NewManifest { place, at, media_type, bytes } = new;
    let (digest, tag) = match at {
        ImageAt::Digest(digest) => (Some(digest), None),
        ImageAt::Tag(tag) => (None, Some(tag)),
    };
    let _turn = registry.turn(&place).await;
    let taken = match registry.put_manifest(place.clone(), media_type, digest, bytes).await {
        Ok(taken) => taken,
        Err(fault) => return Ok(Err(fault)),
    };
    if let Some(tag) = tag {
        let content = TagContent { digest: taken.digest.clone(), size_bytes: taken.size_bytes };
        let (of, repository) = (context.clone(), place.repository);
        let work = move |tx: &mut Tx<'_>| image::push_tag(&of, tx, (&repository, &tag), &content);
        context.control.store.write(work).await?;
    }
    Ok(Ok(taken))
}

/// Removes a tag, or a manifest with all tags that name it.
pub async fn remove(
    context: &Context,
    registry: &dyn Registry,
    repository: &OwnRepository,
    at: ImageAt,
    deployed: Deployed,
) -> Result<Result<(), RegistryFault>, Error> {
    let (of, named, known) = (context.clone(), repository.clone(), deployed.clone());
    let work = move |tx: &mut Tx<'_>| {
        image::without(&of, tx, &named, &at, known.clone()).map(|it| (it, at.clone()))
    };
    let (tags, at) = context.control.store.write(work).await?;
    let place =
        Place { workspace: context.member.workspace.clone(), repository: repository.clone() };
    let digest = match at {
        ImageAt::Tag(_) if tags.is_empty() => return Ok(Err(RegistryFault::NoManifest)),
        ImageAt::Tag(_) => tags.into_iter().next(),
        ImageAt::Digest(digest) if tags.is_empty() => {
            match registry.manifest(place, digest.clone()).await {
                Ok(_) => Some(digest),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        ImageAt::Digest(digest) => Some(digest),
    };
    after_deletion(context, repository, digest.into_iter().collect(), &deployed).await?;
    Ok(Ok(()))
}

/// Fetches an image from another registry, and makes it one of the workspace's own. With a key it
/// is registered only once.
pub async fn register(
    context: &Context,
    wish: CreateImageRequest,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    if let Some(answer) = earlier(&context.control.store, key.as_ref()).await? {
        return Ok(answer);
    }
    let refused = |why: String| Unfit::ImageNotHad { why };
    let none = || Error::NoRoom("this server has no machine that keeps images".to_owned());
    let host = context.control.machine().ok_or_else(none)?;
    let registry = host.registry().ok_or_else(none)?;
    let repository =
        OwnRepository::new(&wish.resource_type, &wish.name).map_err(BadImageName::in_request)?;
    let source = wish.image.unwrap_or_default();
    let Ok(machine::ImageAt::Registry { name }) = host.find_image(&source) else {
        let why =
            "`image` must name an image of another registry, with the registry's host in front";
        return Err(refused(why.to_owned()).into());
    };
    may_work(context).await?;
    let credentials = wish.docker_config.as_ref().map(|config| config.0.as_str());
    let fetched = host.fetch_for(&context.member.workspace, &source, credentials).await;
    let digest = fetched.map_err(|fault| match fault {
        LaunchFault::Pull(why) => refused(why).into(),
        other => Error::from(other),
    })?;
    let tag = tag_of(&name).to_owned();
    let place =
        Place { workspace: context.member.workspace.clone(), repository: repository.clone() };
    let _turn = registry.turn(&place).await;
    let size_bytes = registry.adopt(place.clone(), digest.clone()).await.map_err(broken)?;
    let (of, named, content) =
        (context.clone(), repository.clone(), TagContent { digest, size_bytes });
    let work = move |tx: &mut Tx<'_>| {
        let reference = image::push_tag(&of, tx, (&named, &tag), &content)?;
        Ok::<_, Error>(registered_as(&source, &named, reference))
    };
    once(&context.control.store, key, work).await
}

fn registered_as(source: &str, repository: &OwnRepository, reference: String) -> CreateImageAnswer {
    CreateImageAnswer {
        build: Some(false),
        message: Some(format!("{source} is registered as {reference}")),
        image: Some(reference),
        name: Some(repository.name().to_owned()),
        resource_type: Some(repository.resource_type().to_owned()),
    }
}

/// Checks the budget before anything is fetched.
async fn may_work(context: &Context) -> Result<(), Error> {
    let of = context.clone();
    context.control.store.read(move |tx| billing::allow(&of, tx)).await
}

/// Returns the tag in a full image name; `latest` if it has none, as a name with only a digest.
fn tag_of(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split_once(':').map_or(DEFAULT_TAG, |(_, tag)| tag)
}

/// Converts faults that only a defect or a failing disk can cause here, and refusals for lack of
/// room.
fn broken(fault: RegistryFault) -> Error {
    match fault {
        RegistryFault::Full(admission::Refused::Share { .. }) => {
            Error::OverShare(fault.to_string())
        }
        RegistryFault::Crowded(refused) | RegistryFault::Full(refused) => Error::Crowded(refused),
        RegistryFault::DiskFull => Error::NoRoom(fault.to_string()),
        other => Error::Store(store::Error::Unusable(other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_that_of_the_name() {
        for (name, tag) in [
            ("ghcr.io/a/b:v1", "v1"),
            ("localhost:5000/a", "latest"),
            ("localhost:5000/a:2@sha256:00", "2"),
            ("ghcr.io/a/b@sha256:00", "latest"),
        ] {
            assert_eq!(tag_of(name), tag, "{name}");
        }
    }
}
