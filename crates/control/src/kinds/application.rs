//! Applications.

use crate::addresses;
use crate::context::Context;
use crate::engine::{self, Draft, Held, Managed};
use crate::error::{Error, Unfit};
use crate::workload_identity;
use crate::{snapshot_base, snapshots};
use store::Tx;
use store::revisions::Revision;
use types::edge::application_name;
use types::ids::ResourceId;
use types::kinds::Application;
use types::kinds::application::AppRevision;
use types::parts::Lifecycle;
use types::{Kind, KindName, Problems, Scope, Verb};

impl Managed for Application {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        let label = application_name(held.state.label.as_deref()?);
        let content_url = context.control.content_url_at(Self::machine(&held.state));
        Some(types::hosts::findable_url(&content_url, &label))
    }

    fn machine(state: &Self::State) -> Option<&str> {
        state.machine.as_deref()
    }

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(&mut state.lifecycle)
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        require_sandbox(context, tx, draft.wish)?;
        require_snapshot(context, tx, draft)?;
        let label = match draft.state.label.take() {
            Some(label) => label,
            None => addresses::take_application_label(context, tx, draft.id, draft.wish.name())?,
        };
        let urls = draft.wish.spec.urls.as_deref().unwrap_or_default();
        addresses::take_hosts(context, tx, draft.id, (&label, urls))?;
        draft.state.label = Some(label);
        Ok(())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        Ok(workload_identity::end(context, tx, &held.row)?)
    }

    /// Published clients take what runs now from the first of the revisions.
    fn adorn(&mut self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        if let Some(row) = context.find(tx, Self::NAME, &[], self.name())? {
            self.spec.revisions = Some(revisions(tx, &row.id)?).filter(|kept| !kept.is_empty());
        }
        Ok(())
    }
}

/// Requires the right to make previews: whoever lets everybody reach a port of a sandbox could use
/// one.
fn require_sandbox(context: &Context, tx: &mut Tx<'_>, wish: &Application) -> Result<(), Error> {
    let Some(sandbox) = wish.bound_sandbox().filter(|_| wish.enabled()) else { return Ok(()) };
    context.member.may(&[Scope::Sandboxes(Verb::Create)])?;
    if context.find(tx, KindName::Sandbox, &[], sandbox)?.is_some() {
        return Ok(());
    }
    let why = format!("names the sandbox `{sandbox}`, which does not exist");
    Err(Problems::one("spec.extensions", why).into())
}

/// Checks the snapshot to begin with, which holds what a sandbox wrote. It fits only over the image
/// that it was taken over, so one kept from the earlier wish is dropped when the image changes.
fn require_snapshot(
    context: &Context,
    tx: &mut Tx<'_>,
    draft: &mut Draft<'_, Application>,
) -> Result<(), Error> {
    let Some(wanted) = draft.wish.spec.snapshot.clone() else { return Ok(()) };
    if let Some(old) = draft.old.filter(|old| old.spec.snapshot.as_ref() == Some(&wanted)) {
        if old.spec.image != draft.wish.spec.image {
            draft.wish.spec.snapshot = None;
        }
        return Ok(());
    }
    // A kept revision is gone back to with its snapshot, even if that was deleted since.
    let again = |kept: &AppRevision| {
        kept.snapshot.as_ref() == Some(&wanted)
            && Some(&kept.image) == draft.wish.spec.image.as_ref()
    };
    if revisions(tx, draft.id)?.iter().any(again) {
        return Ok(());
    }
    context.member.may(&[Scope::Sandboxes(Verb::Create)])?;
    let snapshot = snapshots::usable(context, tx, None, &wanted)?;
    if draft.state.machine.is_some() && draft.state.machine != snapshot.state.machine {
        let why = context.control.kept_elsewhere(snapshot.state.machine.as_deref());
        return Err(Unfit::SnapshotOnOtherMachine { why }.into());
    }
    let image = snapshot.image().map(str::to_owned);
    if image == draft.wish.spec.image {
        let image = image.unwrap_or_default();
        snapshot_base::require_image(context, &snapshot, &image)?;
        draft.wish.spec.snapshot = Some(snapshot.row.name);
        return Ok(());
    }
    let why = format!("was taken over another image: `{}`", image.unwrap_or_default());
    Err(Problems::one("spec.snapshot", why).into())
}

/// Returns what each kept revision runs, newest first.
pub fn revisions(tx: &mut Tx<'_>, id: &ResourceId) -> Result<Vec<AppRevision>, Error> {
    let kept = engine::earlier::<Application>(tx, id)?;
    let revision = |(kept, wish): (Revision, Application)| AppRevision {
        image: wish.spec.image.unwrap_or_default(),
        created_at: Some(kept.created_at),
        created_by: Some(kept.created_by),
        envs: wish.spec.envs,
        id: Some(kept.id),
        memory: wish.spec.memory,
        port: wish.spec.port,
        snapshot: wish.spec.snapshot,
    };
    Ok(kept.into_iter().map(revision).collect())
}
