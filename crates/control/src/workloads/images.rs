//! The images that a workspace may run: those on the machine that everybody may use, those that a
//! registry has granted to it, and its own. The store keeps the rights, the machine the content. A
//! workspace must fetch an image from its registry even if another workspace already has it; if the
//! content is here, that costs only the request to the registry.

use super::rows;
use crate::engine::Held;
use crate::error::Error;
use crate::machine::{ImageAt, Launch, LaunchFault, Machine, UnknownImage};
use crate::snapshot_base;
use store::identity::workspaces;
use store::{Store, Tx, image_rights, resources};
use types::ids::WorkspaceId;
use types::kinds::Image;
use types::own_image::{OwnImage, is_own_image};
use types::{KindName, Timestamp};

/// Most names of own images that a message lists.
const NAMES_MAX: i64 = 100;
/// Most characters of an unknown name that a message repeats.
const WANTED_MAX: usize = 200;
/// How soon a repeated start is noted again, so that a workload that starts often does not write
/// each time.
const DEPLOYED_AGAIN_MS: i64 = 60_000;

/// When an image can be started for a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Usable {
    /// At once. Has the digest that the workspace was granted, if not everybody may use the image.
    Now(Option<String>),
    /// After it has been fetched from its registry.
    Fetched,
}

/// Finds out when an image can be started. Refuses one that no machine could have.
pub(crate) fn usable(
    tx: &mut Tx<'_>,
    machine: &dyn Machine,
    workspace: &WorkspaceId,
    image: &str,
) -> Result<Usable, Error> {
    if is_own_image(image) {
        let found = own(tx, workspace, image)?;
        return match here(machine, found) {
            Ok(digest) => Ok(Usable::Now(Some(digest))),
            Err(unknown) => Err(Error::InvalidImage(unknown)),
        };
    }
    match machine.find_image(image) {
        Ok(ImageAt::Hand) => Ok(Usable::Now(None)),
        Ok(ImageAt::Registry { name }) => {
            let granted = image_rights::find(tx, workspace, &name)?
                .filter(|digest| machine.has_image(digest));
            Ok(granted.map_or(Usable::Fetched, |digest| Usable::Now(Some(digest))))
        }
        Err(mut unknown) => {
            unknown.there_are.extend(image_rights::names(tx, workspace, NAMES_MAX)?);
            Err(Error::InvalidImage(unknown))
        }
    }
}

/// Returns the digest of an image of the workspace's own, if it exists, and the error that lists
/// those that exist.
fn own(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    image: &str,
) -> Result<(Option<String>, UnknownImage), store::Error> {
    let digest = match image.parse::<OwnImage>() {
        Ok(image) => image_rights::find(tx, workspace, &image.to_string())?,
        Err(_) => None,
    };
    let mut there_are = image_rights::names(tx, workspace, NAMES_MAX)?;
    there_are.retain(|name| is_own_image(name));
    let wanted = image.chars().take(WANTED_MAX).collect();
    // With the digest known, the caller checks whether its content is here.
    let elsewhere = digest.is_some();
    Ok((digest, UnknownImage { wanted, there_are, elsewhere }))
}

fn here(
    machine: &dyn Machine,
    (digest, unknown): (Option<String>, UnknownImage),
) -> Result<String, UnknownImage> {
    digest.filter(|digest| machine.has_image(digest)).ok_or(unknown)
}

/// Makes sure that a launch may use its image: by an earlier grant to its workspace, or else by
/// asking the registry now.
pub(crate) async fn entitle(
    store: &Store,
    machine: &dyn Machine,
    launch: &mut Launch,
) -> Result<(), LaunchFault> {
    let workspace = WorkspaceId::known(launch.workspace.as_str());
    if snapshot_base::is_kept(machine, launch.snapshot.as_ref())
        || has_disk_over_it(machine, launch)
    {
        return Ok(());
    }
    if is_own_image(&launch.image) {
        return entitle_own(store, machine, launch, workspace).await;
    }
    let ImageAt::Registry { name } = machine.find_image(&launch.image)? else { return Ok(()) };
    let known = {
        let (workspace, name) = (workspace.clone(), name.clone());
        store.read(move |tx| image_rights::find(tx, &workspace, &name)).await.map_err(unread)?
    };
    let digest = match known.filter(|digest| machine.has_image(digest)) {
        Some(digest) => digest,
        None => {
            let digest = machine.fetch_image(launch).await?;
            let granted = digest.clone();
            let grant = move |tx: &mut Tx<'_>| match workspaces::keep(tx, &workspace)? {
                true => image_rights::grant(tx, &workspace, &name, &granted),
                false => Ok(()),
            };
            store.write(grant).await.map_err(unread)?;
            digest
        }
    };
    launch.granted = Some(digest);
    Ok(())
}

/// Returns whether a launch has a disk that lies over an image which is here. It starts on that
/// image, whatever the name means by now: the workspace could use it when the disk was made.
fn has_disk_over_it(machine: &dyn Machine, launch: &Launch) -> bool {
    let store = launch.root.as_ref().and_then(|disk| Some((disk, machine.volumes()?)));
    store.is_some_and(|(disk, store)| store.has_image_below(disk))
}

async fn entitle_own(
    store: &Store,
    machine: &dyn Machine,
    launch: &mut Launch,
    workspace: WorkspaceId,
) -> Result<(), LaunchFault> {
    let (image, of) = (launch.image.clone(), workspace.clone());
    let name = image.clone();
    let found = store.read(move |tx| own(tx, &of, &name)).await.map_err(unread)?;
    let digest = here(machine, found)?;
    let note = move |tx: &mut Tx<'_>| note_deployed(tx, &workspace, &image);
    if let Err(error) = store.write(note).await {
        tracing::error!(%error, "the time of a deployment could not be noted with its image");
    }
    launch.granted = Some(digest);
    Ok(())
}

/// Keeps others from removing an image, if it is one of the workspace's own, until the row of a
/// workload is written, which says that it is used. Refuses one that was removed since it was looked
/// up. Another image may have its name by now: then this workload was just faster. To be called after
/// [`note_deployed`], which may lock what two callers keep.
pub(crate) fn keep(tx: &mut Tx<'_>, workspace: &WorkspaceId, image: &str) -> Result<(), Error> {
    let Some(own_image) = image.parse::<OwnImage>().ok().filter(|_| is_own_image(image)) else {
        return Ok(());
    };
    let (parent, name) = (own_image.repository().resource_type(), own_image.repository().name());
    resources::keep(tx, workspace, KindName::Image, parent, name)?;
    match image_rights::find(tx, workspace, &own_image.to_string())? {
        Some(_) => Ok(()),
        None => Err(Error::InvalidImage(own(tx, workspace, image)?.1)),
    }
}

/// Notes the time with an image of the workspace's own when a workload starts using it.
pub(crate) fn note_deployed(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    image: &str,
) -> Result<(), Error> {
    if !is_own_image(image) {
        return Ok(());
    }
    let Ok(image) = image.parse::<OwnImage>() else { return Ok(()) };
    let (parent, name) = (image.repository().resource_type(), image.repository().name());
    let now = tx.world().now();
    let recent = |at: Timestamp| now.ms() - at.ms() < DEPLOYED_AGAIN_MS;
    let Some(row) = resources::find(tx, workspace, KindName::Image, parent, name)? else {
        return Ok(());
    };
    if Held::<Image>::read(row)?.state.last_deployed_at.is_some_and(recent) {
        return Ok(());
    }
    let Some(row) = resources::lock(tx, workspace, KindName::Image, parent, name)? else {
        return Ok(());
    };
    let held = Held::<Image>::read(row)?;
    let mut state = held.state.clone();
    state.last_deployed_at = Some(now);
    rows::put_state(tx, held, state).map(drop)
}

fn unread(error: store::Error) -> LaunchFault {
    tracing::error!(%error, "rights to an image could not be looked up");
    LaunchFault::Broken("rights to its image could not be looked up".to_owned())
}
