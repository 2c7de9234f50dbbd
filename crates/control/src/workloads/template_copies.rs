//! Looks after the copies of volume templates at the object service.
//!
//! The rows say which copies there have to be. Whatever a kill, a failure or a deletion leaves is
//! found by comparing them with what the service and this machine have:
//!
//! | a version in the rows | at the service | on this machine | what is done |
//! |---|---|---|---|
//! | none | a copy, or parts of one | | removed |
//! | none | | a file system | removed |
//! | ready, with a copy | | unused for long | removed here |
//! | ready, without a copy | | unpacked here | put there |
//!
//! Every server does this for all rows, since the machine that put a copy may be gone for good.

use super::{rows, soon};
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::volume_store::{VolumeFault, VolumeStore};
use crate::volume_templates::{self, name_of, numbers};
use std::collections::{HashMap, HashSet};
use store::Tx;
use store::resources::{self, Stored};
use types::KindName;
use types::ids::ResourceId;
use types::instance::{KeptFor, VolumeName};
use types::kinds::VolumeTemplate;
use types::kinds::volume_template::Content;

/// Rows read at once.
const PAGE: i64 = 200;
/// How many copies in a row may fail before the service itself seems to be out of order.
const FAILURES_MAX: u32 = 5;

/// Content that a row names.
enum Named {
    /// Its upload is awaited, or being unpacked.
    Awaited,
    Copied,
    Uncopied {
        workspace: String,
        machine: String,
    },
}

/// All content that rows name.
#[derive(Default)]
struct Versions {
    named: HashMap<VolumeName, Named>,
    /// Templates whose rows cannot be read, so that nothing of theirs may be removed.
    unreadable: HashSet<ResourceId>,
}

/// Why not all could be looked after.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Rows(#[from] Error),
    #[error(transparent)]
    Files(#[from] VolumeFault),
}

pub(super) async fn run(control: Control) {
    let Some((volumes, machine)) = control.volume_store() else { return };
    loop {
        tokio::time::sleep(control.settings.template_copies.tidy_every).await;
        if let Err(error) = tidy(&control, &*volumes, &machine).await {
            tracing::warn!(%error, "copies of volume templates cannot be looked after now; it is tried again");
        }
    }
}

async fn tidy(control: &Control, volumes: &dyn VolumeStore, machine: &str) -> Result<(), Failed> {
    // Both are listed before the rows are read. A row has a number before there is any content of
    // this number, so content that no row names by then is not wanted any more.
    let Some(copies) = volumes.copies().await? else { return Ok(()) };
    let kept = volumes.list();
    let versions = Versions::read(control).await?;
    for copy in copies.iter().filter(|copy| versions.lacks(&copy.name)) {
        volumes.remove_copy(copy).await?;
    }
    let since = control.world.now().minus(control.settings.template_copies.unused_after);
    let mut uncopied = Vec::new();
    for name in kept.into_iter().map(|kept| kept.name) {
        let Some(KeptFor::Template { id, number }) = name.kept_for() else { continue };
        match versions.named.get(&name) {
            None if versions.lacks(&name) => {
                soon::reconcile(control, KindName::VolumeTemplate, id);
            }
            Some(Named::Copied) => volumes.release(&name, since).await?,
            Some(Named::Uncopied { workspace, machine: of }) if of == machine => {
                uncopied.push((workspace.clone(), id, number));
            }
            None | Some(Named::Awaited | Named::Uncopied { .. }) => {}
        }
    }
    Ok(put_all(control, volumes, uncopied).await?)
}

/// Puts copies of versions that were made before there was a service. One that cannot be put does
/// not keep the others here.
async fn put_all(
    control: &Control,
    volumes: &dyn VolumeStore,
    uncopied: Vec<(String, ResourceId, u64)>,
) -> Result<(), Error> {
    let mut in_a_row = 0;
    for (workspace, id, number) in uncopied {
        match volumes.put_copy(&workspace, &name_of(&id, number)).await {
            Ok(Some(digest)) => {
                in_a_row = 0;
                let work =
                    move |tx: &mut Tx<'_>| volume_templates::copied(tx, &id, number, &digest);
                control.store.write(work).await?;
            }
            Ok(None) => {}
            Err(fault) => {
                tracing::warn!(%fault, template = %id, number, "a version stays on this machine alone for now");
                in_a_row += 1;
            }
        }
        if in_a_row == FAILURES_MAX {
            break;
        }
    }
    Ok(())
}

impl Versions {
    async fn read(control: &Control) -> Result<Self, Error> {
        let mut versions = Self::default();
        let mut after: Option<ResourceId> = None;
        loop {
            let from = after.take();
            let page = move |tx: &mut Tx<'_>| {
                resources::scan(tx, KindName::VolumeTemplate, from.as_ref(), PAGE)
            };
            let page: Vec<Stored> = control.store.read(page).await?;
            let Some(last) = page.last() else { return Ok(versions) };
            after = Some(last.id.clone());
            for row in page {
                let id = row.id.clone();
                match Held::<VolumeTemplate>::read(row) {
                    Ok(held) => versions.add(&held),
                    Err(error) if rows::may_pass(&error) => return Err(error),
                    Err(error) => {
                        tracing::error!(%error, %id, "a volume template cannot be read; its content is left as it is");
                        versions.unreadable.insert(id);
                    }
                }
            }
        }
    }

    fn add(&mut self, held: &Held<VolumeTemplate>) {
        for number in numbers(&held.state) {
            self.named.insert(name_of(&held.row.id, number), Named::Awaited);
        }
        for version in &held.state.versions {
            let Content::Ready { number, machine, copy, .. } = &version.content else { continue };
            let (workspace, machine) = (held.row.workspace.to_string(), machine.clone());
            let named = match copy {
                Some(_) => Named::Copied,
                None => Named::Uncopied { workspace, machine },
            };
            self.named.insert(name_of(&held.row.id, *number), named);
        }
    }

    /// Returns true if no row names this content, and none that cannot be read could.
    fn lacks(&self, name: &VolumeName) -> bool {
        let is_unreadable = match name.kept_for() {
            Some(KeptFor::Template { id, .. }) => self.unreadable.contains(&id),
            // Not a name that this server gives, so nothing is known about it.
            _ => true,
        };
        !is_unreadable && !self.named.contains_key(name)
    }
}
