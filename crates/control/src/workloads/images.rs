//! Which images a workspace may run: those on the machine that are for everybody, and those that a
//! registry granted to it. The store keeps the rights, the machine the content. A workspace must
//! fetch an image even if another one already has; if the content is here, that only costs the
//! request to the registry.

use crate::error::Error;
use crate::machine::{ImageAt, Launch, LaunchFault, Machine, UnknownImage};
use store::{Store, Tx, image_rights};
use types::ids::WorkspaceId;

/// Names of own images that a message lists.
const NAMES_MAX: i64 = 100;

/// Whether an image can be started for a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Usable {
    /// At once. With the digest of what the workspace was granted, where it is not for everybody.
    Now(Option<String>),
    /// After it was fetched from its registry.
    Fetched,
}

/// Refuses an image that no machine could have.
pub(crate) fn usable(
    tx: &mut Tx<'_>,
    machine: &dyn Machine,
    workspace: &WorkspaceId,
    image: &str,
) -> Result<Usable, Error> {
    let found = machine.find_image(image);
    if !matches!(found, Ok(ImageAt::Hand))
        && let Some(digest) = own(tx, machine, workspace, image)?
    {
        return Ok(Usable::Now(Some(digest)));
    }
    match found {
        Ok(ImageAt::Hand) => Ok(Usable::Now(None)),
        Ok(ImageAt::Registry { name }) => {
            let granted = image_rights::find(tx, workspace, &name)?
                .filter(|digest| machine.has_image(digest));
            Ok(granted.map_or(Usable::Fetched, |digest| Usable::Now(Some(digest))))
        }
        Err(UnknownImage { wanted, mut there_are }) => {
            there_are.extend(image_rights::names(tx, workspace, NAMES_MAX)?);
            Err(Error::InvalidImage(UnknownImage { wanted, there_are }))
        }
    }
}

/// The digest of an image of the workspace's own registry. Its rights have its reference as it is
/// written, which those to images of other registries never have: theirs name the registry.
fn own(
    tx: &mut Tx<'_>,
    machine: &dyn Machine,
    workspace: &WorkspaceId,
    image: &str,
) -> Result<Option<String>, store::Error> {
    let granted = image_rights::find(tx, workspace, image)?;
    Ok(granted.filter(|digest| machine.has_image(digest)))
}

/// Makes sure that a launch may use its image: by what its workspace was granted, else by what a
/// registry says now.
pub(crate) async fn entitle(
    store: &Store,
    machine: &dyn Machine,
    launch: &mut Launch,
) -> Result<(), LaunchFault> {
    let found = machine.find_image(&launch.image);
    if let Ok(ImageAt::Hand) = found {
        return Ok(());
    }
    let workspace = WorkspaceId::known(launch.workspace.as_str());
    let (of, image) = (workspace.clone(), launch.image.clone());
    let granted = store.read(move |tx| image_rights::find(tx, &of, &image)).await;
    if let Some(digest) = granted.map_err(unread)?.filter(|digest| machine.has_image(digest)) {
        launch.granted = Some(digest);
        return Ok(());
    }
    let ImageAt::Registry { name } = found? else { return Ok(()) };
    let known = {
        let (workspace, name) = (workspace.clone(), name.clone());
        store.read(move |tx| image_rights::find(tx, &workspace, &name)).await.map_err(unread)?
    };
    let digest = match known.filter(|digest| machine.has_image(digest)) {
        Some(digest) => digest,
        None => {
            let digest = machine.fetch_image(launch).await?;
            let granted = digest.clone();
            let grant = move |tx: &mut Tx<'_>| image_rights::grant(tx, &workspace, &name, &granted);
            store.write(grant).await.map_err(unread)?;
            digest
        }
    };
    launch.granted = Some(digest);
    Ok(())
}

fn unread(error: store::Error) -> LaunchFault {
    tracing::error!(%error, "rights to an image could not be looked up");
    LaunchFault::Broken("rights to its image could not be looked up".to_owned())
}
