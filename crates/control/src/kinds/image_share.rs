//! Sharing images: at once within an account, by acceptance across accounts. A share copies the row
//! of an image; its layers stay where they are.

use super::image;
use crate::context::Context;
use crate::engine::{self, Held, Managed, Paging, Secrets};
use crate::error::{Absent, Conflict, Error, Unfit};
use crate::json;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::identity::workspaces::{self, Workspace};
use store::resources::{Query, Stored, offers};
use store::{Tx, image_rights};
use types::ids::{AccountId, ResourceId, WorkspaceId};
use types::kinds::image::State;
use types::kinds::{Image, ImageShare};
use types::wire::{ImageShareRequest, ImageShareTarget, PendingImageShareRender, ShareStatus};
use types::{Kind, KindName};

/// How long a share across accounts may wait for acceptance.
const PENDING_S: i64 = 7 * 24 * 3600;

impl Managed for ImageShare {
    const PAGING: Paging = Paging::Bare;
}

/// The result of sharing an image, with what is shown of it in JSON.
#[derive(Serialize, Deserialize)]
pub enum Shared {
    /// The other workspace has the image from now on.
    Done(String),
    /// The other account has to accept the offer.
    Offered(String),
}

/// Shares an image with another workspace.
pub fn share(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    asked: &ImageShareRequest,
) -> Result<Shared, Error> {
    let mut held = Held::<Image>::lock(context, tx, parents, name)?;
    if let Some(owner) = &held.state.source_workspace {
        return Err(Unfit::ImageOfOther { owner: owner.clone() }.into());
    }
    let target = target(context, tx, asked)?;
    if let Some(share) = held.state.shares.iter().find(|share| share.workspace == target.name) {
        // The other workspace may have deleted its copy since, and want it again.
        let given = share.status == ShareStatus::Active;
        if !given || copy_of(&context.in_workspace(&target), tx, &held)?.is_some() {
            return Err(Conflict::ImageShared { workspace: target.name }.into());
        }
        held.state.shares.retain(|share| share.workspace != target.name);
    }
    if target.account == context.member.account {
        let (owner, to) = (&context.member.workspace_name, context.in_workspace(&target));
        copy_into(&to, tx, &held.row, &held.state, owner, false)?;
        return note_share(context, tx, held, &target, None)
            .map(|image| Shared::Done(json::text(&image)));
    }
    let pending = offer(context, tx, &held, &target)?;
    note_share(context, tx, held, &target, pending.id.clone())?;
    Ok(Shared::Offered(json::text(&pending)))
}

/// Returns the workspace that a share names, in this account or in the named one.
fn target(
    context: &Context,
    tx: &mut Tx<'_>,
    asked: &ImageShareRequest,
) -> Result<Workspace, Error> {
    let account = asked.target_account_id.as_deref().filter(|id| !id.is_empty());
    let account = account.map_or_else(|| context.member.account.clone(), AccountId::known);
    let found = workspaces::find_by_name(tx, &asked.target_workspace)?
        .filter(|workspace| workspace.account == account);
    let found = found.filter(|workspace| workspace.id != context.member.workspace);
    found.ok_or_else(|| Absent::ShareTarget.into())
}

/// Records a share with the image.
fn note_share(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<Image>,
    target: &Workspace,
    pending: Option<String>,
) -> Result<Image, Error> {
    let mut state = held.state.clone();
    state.shares.push(ImageShareTarget {
        account_id: target.account.to_string(),
        account_owner_email: None,
        status: if pending.is_some() { ShareStatus::Pending } else { ShareStatus::Active },
        pending_share_id: pending,
        workspace: target.name.clone(),
        workspace_display_name: Some(target.display_name.clone()),
    });
    let held = engine::change_state(context, tx, held, state)?;
    engine::present(context, tx, &held, &Secrets::Masked)
}

/// Puts a copy of the row into the target workspace. With `force` it replaces an image of the same
/// name.
fn copy_into(
    target: &Context,
    tx: &mut Tx<'_>,
    row: &Stored,
    state: &State,
    owner: &str,
    force: bool,
) -> Result<Stored, Error> {
    auth::workspaces::keep(tx, &target.member)?;
    let parents = [row.parent.clone()];
    if let Some(existing) = target.find(tx, KindName::Image, &parents, &row.name)? {
        if !force {
            let workspace = &target.member.workspace_name;
            return Err(Conflict::ImageThere { workspace: workspace.clone() }.into());
        }
        let existing = Held::<Image>::read(existing)?;
        image::let_go(target, tx, &existing)?;
        store::resources::delete(tx, &existing.row, target.actor())?;
    }
    let state = State {
        source_workspace: Some(owner.to_owned()),
        source_workspace_id: Some(row.workspace.clone()),
        shares: Vec::new(),
        ..state.clone()
    };
    let repository = row.path();
    for (tag, digest) in &state.digests {
        grant(tx, &target.member.workspace, &repository, tag, digest)?;
    }
    let copy = Stored {
        id: ResourceId::new(target.world()),
        workspace: target.member.workspace.clone(),
        state: json::text(&state),
        ..row.clone()
    };
    Ok(store::resources::insert(tx, copy)?)
}

fn grant(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    repository: &str,
    tag: &str,
    digest: &str,
) -> Result<(), Error> {
    image_rights::grant(tx, workspace, &format!("{repository}:{tag}"), digest)?;
    Ok(image_rights::grant(tx, workspace, &format!("{repository}@{digest}"), digest)?)
}

/// Updates the copies of a shared image: adds new tags, moves changed ones and removes deleted
/// ones.
pub(super) fn propagate(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Image>,
) -> Result<(), Error> {
    let active = |share: &&ImageShareTarget| share.status == ShareStatus::Active;
    for share in held.state.shares.iter().filter(active) {
        let Some(workspace) = workspaces::find_by_name(tx, &share.workspace)? else { continue };
        let target = context.in_workspace(&workspace);
        let Some(copy) = copy_of(&target, tx, held)? else { continue };
        let repository = held.row.path();
        for (tag, digest) in &held.state.digests {
            if copy.state.digests.get(tag) != Some(digest) {
                grant(tx, &workspace.id, &repository, tag, digest)?;
            }
        }
        for tag in copy.state.digests.keys().filter(|tag| !held.state.digests.contains_key(*tag)) {
            image_rights::revoke(tx, &workspace.id, &format!("{repository}:{tag}"))?;
        }
        let state = State {
            tags: held.state.tags.clone(),
            digests: held.state.digests.clone(),
            size: held.state.size,
            lifecycle: held.state.lifecycle.clone(),
            ..copy.state.clone()
        };
        engine::change_state(&target, tx, copy, state)?;
    }
    Ok(())
}

/// Returns the copy that another workspace has of a shared image. The workspace may have an image
/// of its own under that name by now.
fn copy_of(
    target: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Image>,
) -> Result<Option<Held<Image>>, Error> {
    let parents = held.parents();
    if target.find(tx, KindName::Image, &parents, &held.row.name)?.is_none() {
        return Ok(None);
    }
    let copy = Held::<Image>::lock(target, tx, &parents, &held.row.name)?;
    let is_copy = copy.state.source_workspace_id.as_ref() == Some(&held.row.workspace);
    Ok(Some(copy).filter(|_| is_copy))
}

/// Removes the copies that others have of an image that is about to be deleted: they may no longer
/// be started, and nobody pays for them.
pub(super) fn withdraw(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Image>,
) -> Result<(), Error> {
    for share in &held.state.shares {
        if let Some(other) = workspaces::find_by_name(tx, &share.workspace)? {
            remove_copy(context, tx, held, &other)?;
        }
    }
    Ok(())
}

fn remove_copy(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Image>,
    other: &Workspace,
) -> Result<(), Error> {
    let other = context.in_workspace(other);
    let Some(copy) = copy_of(&other, tx, held)? else { return Ok(()) };
    image::let_go(&other, tx, &copy)?;
    Ok(store::resources::delete(tx, &copy.row, context.actor())?)
}

/// Creates the pending share, which is kept in the source workspace.
fn offer(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Image>,
    target: &Workspace,
) -> Result<ImageShare, Error> {
    let share = ImageShare {
        id: Some(format!("share-{}", context.world().random_text(20))),
        expires_at: Some(context.world().now().plus_s(PENDING_S)),
        image_name: Some(held.row.name.clone()),
        resource_type: Some(held.row.parent.clone()),
        shared_by: Some(context.actor().to_owned()),
        source_account_id: Some(context.member.account.to_string()),
        source_workspace: Some(context.member.workspace_name.clone()),
        target_account_id: Some(target.account.to_string()),
        target_workspace: Some(target.name.clone()),
        ..ImageShare::default()
    };
    let share = engine::create(context, tx, &[], share)?;
    let row = Held::<ImageShare>::lock(context, tx, &[], share.name())?.row;
    offers::address(tx, row, &target.id)?;
    Ok(share)
}

/// Takes back a share of an image, accepted or not.
pub fn unshare(
    context: &Context,
    tx: &mut Tx<'_>,
    parents: &[String],
    name: &str,
    target: &str,
) -> Result<Image, Error> {
    let held = Held::<Image>::lock(context, tx, parents, name)?;
    let mut state = held.state.clone();
    let gone: Vec<_> = state.shares.extract_if(.., |share| share.workspace == *target).collect();
    let Some(share) = gone.into_iter().next() else {
        return Err(Absent::ImageShare { workspace: target.to_owned() }.into());
    };
    match (share.pending_share_id, workspaces::find_by_name(tx, target)?) {
        (Some(pending), _) => drop(engine::remove::<ImageShare>(context, tx, &[], &pending)?),
        (None, Some(other)) => remove_copy(context, tx, &held, &other)?,
        (None, None) => {}
    }
    let held = engine::change_state(context, tx, held, state)?;
    engine::present(context, tx, &held, &Secrets::Masked)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Incoming,
    Outgoing,
}

/// A pending share, and the context of the workspace that offers it.
type Offer = (Context, ImageShare);

/// Returns the pending shares that concern a workspace: the newest ones of each direction, because
/// others decide how many it is offered.
fn offers_of(
    context: &Context,
    tx: &mut Tx<'_>,
    direction: Option<Direction>,
) -> Result<Vec<Offer>, Error> {
    let (own, max) = (&context.member.workspace, context.control.settings.bare_list_max);
    let mut found = Vec::new();
    if direction != Some(Direction::Incoming) {
        let query = Query { limit: max, ..Query::new(own, ImageShare::NAME, None) };
        for row in store::resources::list(tx, &query)? {
            found.push((context.clone(), shown(context, tx, row)?));
        }
    }
    if direction != Some(Direction::Outgoing) {
        for row in offers::list(tx, own, max)? {
            found.extend(from_source(context, tx, row)?);
        }
    }
    Ok(found)
}

/// Reads an offer in the context of the workspace that makes it.
fn from_source(context: &Context, tx: &mut Tx<'_>, row: Stored) -> Result<Option<Offer>, Error> {
    let Some(source) = workspaces::find(tx, &row.workspace)? else { return Ok(None) };
    let source = context.in_workspace(&source);
    let share = shown(&source, tx, row)?;
    Ok(Some((source, share)))
}

fn shown(context: &Context, tx: &mut Tx<'_>, row: Stored) -> Result<ImageShare, Error> {
    engine::present(context, tx, &Held::read(row)?, &Secrets::Masked)
}

/// Returns all pending shares that concern a workspace, in wire form.
pub fn pending(
    context: &Context,
    tx: &mut Tx<'_>,
    direction: Option<Direction>,
) -> Result<Vec<PendingImageShareRender>, Error> {
    let offers = offers_of(context, tx, direction)?;
    offers.into_iter().map(|(_, share)| render(context, tx, share)).collect()
}

fn render(
    context: &Context,
    tx: &mut Tx<'_>,
    share: ImageShare,
) -> Result<PendingImageShareRender, Error> {
    let named = |tx: &mut Tx<'_>, name: &Option<String>| {
        workspaces::find_by_name(tx, name.as_deref().unwrap_or_default())
    };
    let (source, target) =
        (named(tx, &share.source_workspace)?, named(tx, &share.target_workspace)?);
    // The workspace of that name may be somebody else's by now.
    let target =
        target.filter(|target| share.target_account_id.as_deref() == Some(target.account.as_str()));
    let parents = [share.resource_type.clone().unwrap_or_default()];
    let name = share.image_name.clone().unwrap_or_default();
    let conflict = match &target {
        Some(target) => {
            context.in_workspace(target).find(tx, KindName::Image, &parents, &name)?.is_some()
        }
        None => false,
    };
    Ok(PendingImageShareRender {
        created_at: share.created_at,
        expires_at: share.expires_at,
        has_conflict: Some(conflict),
        id: share.id,
        image_name: share.image_name,
        resource_type: share.resource_type,
        shared_by_email: share.shared_by.clone(),
        shared_by: share.shared_by,
        source_account_id: share.source_account_id,
        source_workspace: share.source_workspace,
        source_workspace_display_name: source.map(|workspace| workspace.display_name),
        target_account_id: share.target_account_id,
        target_workspace: share.target_workspace,
        target_workspace_display_name: target.map(|workspace| workspace.display_name),
    })
}

/// Finds the offer that a path names, if it was made to this workspace.
fn offered(context: &Context, tx: &mut Tx<'_>, id: &str) -> Result<Offer, Error> {
    let found = match offers::find(tx, &context.member.workspace, id)? {
        Some(row) => from_source(context, tx, row)?,
        None => None,
    };
    found.ok_or_else(|| Absent::PendingShare.into())
}

/// Takes over a shared image. With `force` it replaces an image of the same name.
pub fn accept(context: &Context, tx: &mut Tx<'_>, id: &str, force: bool) -> Result<Image, Error> {
    let (source, share) = offered(context, tx, id)?;
    if share.expires_at.is_some_and(|end| end <= context.world().now()) {
        return Err(Error::ShareExpired);
    }
    let parents = [share.resource_type.clone().unwrap_or_default()];
    let name = share.image_name.as_deref().unwrap_or_default();
    let image = Held::<Image>::lock(&source, tx, &parents, name)?;
    let owner = &source.member.workspace_name;
    let copy = copy_into(context, tx, &image.row, &image.state, owner, force)?;
    let mut state = image.state.clone();
    let pending = |target: &&mut ImageShareTarget| target.pending_share_id.as_deref() == Some(id);
    for target in state.shares.iter_mut().filter(pending) {
        (target.status, target.pending_share_id) = (ShareStatus::Active, None);
    }
    engine::change_state(&source, tx, image, state)?;
    engine::remove::<ImageShare>(&source, tx, &[], id)?;
    engine::present(context, tx, &Held::<Image>::read(copy)?, &Secrets::Masked)
}

/// Declines a share that was offered by another workspace.
pub fn decline(context: &Context, tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let (source, share) = offered(context, tx, id)?;
    let parents = [share.resource_type.clone().unwrap_or_default()];
    let name = share.image_name.clone().unwrap_or_default();
    if source.find(tx, KindName::Image, &parents, &name)?.is_some() {
        let image = Held::<Image>::lock(&source, tx, &parents, &name)?;
        let mut state = image.state.clone();
        state.shares.retain(|target| target.pending_share_id.as_deref() != Some(id));
        engine::change_state(&source, tx, image, state)?;
    }
    engine::remove::<ImageShare>(&source, tx, &[], id).map(drop)
}
