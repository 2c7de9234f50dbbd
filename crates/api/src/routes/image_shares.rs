//! Sharing images: at once within an account, by acceptance across accounts. A share copies what is
//! known of an image; its layers stay where they are.

use crate::call::{Body, Call};
use crate::engine::{self, Desk, Held, Managed, Paging, Secrets};
use crate::error::Error;
use crate::query::{Flag, NoQuery};
use crate::reply::{NowOrLater, Reply, Silent};
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use store::identity::workspaces::{self, Workspace};
use store::resources::Stored;
use types::KindName;
use types::ids::{AccountId, ResourceId};
use types::kinds::image::State;
use types::kinds::{Image, ImageShare};
use types::wire::{ImageShareRequest, ImageShareTarget, PendingImageShareRender, ShareStatus};

/// How long a share across accounts waits.
const PENDING_S: i64 = 7 * 24 * 3600;

impl Managed for ImageShare {
    const PAGING: Paging = Paging::Bare;
}

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<ImageShareTarget>>, Error> {
    let (desk, parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    let held =
        call.app.store.read(move |tx| Held::<Image>::get(&desk, tx, &parents, &name)).await?;
    Ok(Reply::of(&held.state.shares))
}

pub(crate) async fn share(
    call: Call<Member, NoQuery, Body<ImageShareRequest>>,
) -> Result<NowOrLater<Image, ImageShare>, Error> {
    call.who.admin()?;
    let (desk, parents, name, asked) =
        (call.desk(), call.path.parents(), call.path.name().to_owned(), call.body.0);
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<Image>::lock(&desk, tx, &parents, &name)?;
        if let Some(owner) = &held.state.source_workspace {
            return Err(Error::Malformed(format!(
                "the image is shared by `{owner}`; only that workspace can share it on"
            )));
        }
        let target = target(&desk, tx, &asked)?;
        if held.state.shares.iter().any(|share| share.workspace == target.name) {
            return Err(Error::Conflict(format!(
                "the image is shared with `{}` already",
                target.name
            )));
        }
        if target.account == desk.member.account {
            copy_into(
                &desk.in_workspace(&target),
                tx,
                &held.row,
                &held.state,
                &desk.member.workspace_name,
                false,
            )?;
            let image = note_share(&desk, tx, held, &target, None)?;
            return Ok(NowOrLater::Now(Reply::of(&image)));
        }
        let pending = offer(&desk, tx, &held, &target)?;
        note_share(&desk, tx, held, &target, pending.id.clone())?;
        Ok(NowOrLater::Later(Reply::of(&pending)))
    };
    call.app.store.write(work).await
}

/// The workspace that a share names, in this account or in the one that is named with it.
fn target(desk: &Desk, tx: &mut Tx<'_>, asked: &ImageShareRequest) -> Result<Workspace, Error> {
    let account = asked.target_account_id.as_deref().filter(|id| !id.is_empty());
    let account = account.map_or_else(|| desk.member.account.clone(), AccountId::known);
    let found = workspaces::find_by_name(tx, &asked.target_workspace)?
        .filter(|workspace| workspace.account == account);
    let found = found.filter(|workspace| workspace.id != desk.member.workspace);
    found.ok_or_else(|| {
        Error::NotFound(
            "there is no such other workspace; name `targetAccountId` for one of another account"
                .into(),
        )
    })
}

/// Remembers a share with the image.
fn note_share(
    desk: &Desk,
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
    let held = engine::change_state(desk, tx, held, state)?;
    engine::present(desk, tx, &held, &Secrets::Masked)
}

/// Puts a copy of the record into the target workspace; with `force`, over an image of the same name.
fn copy_into(
    target: &Desk,
    tx: &mut Tx<'_>,
    row: &Stored,
    state: &State,
    owner: &str,
    force: bool,
) -> Result<Stored, Error> {
    let parents = [row.parent.clone()];
    if let Some(existing) = target.find(tx, KindName::Image, &parents, &row.name)? {
        if !force {
            let workspace = &target.member.workspace_name;
            return Err(Error::Conflict(format!(
                "the workspace `{workspace}` has an image of this name"
            )));
        }
        store::resources::delete(tx, &existing, target.actor())?;
    }
    let state =
        State { source_workspace: Some(owner.to_owned()), shares: Vec::new(), ..state.clone() };
    let copy = Stored {
        id: ResourceId::new(target.world()),
        workspace: target.member.workspace.clone(),
        state: serde_json::to_string(&state).unwrap_or_default(),
        ..row.clone()
    };
    Ok(store::resources::insert(tx, copy)?)
}

/// Makes the pending share; it lives in the source workspace.
fn offer(
    desk: &Desk,
    tx: &mut Tx<'_>,
    held: &Held<Image>,
    target: &Workspace,
) -> Result<ImageShare, Error> {
    let share = ImageShare {
        id: Some(format!("share-{}", desk.world().random_text(20))),
        expires_at: Some(desk.world().now().plus_s(PENDING_S)),
        image_name: Some(held.row.name.clone()),
        resource_type: Some(held.row.parent.clone()),
        shared_by: Some(desk.actor().to_owned()),
        source_account_id: Some(desk.member.account.to_string()),
        source_workspace: Some(desk.member.workspace_name.clone()),
        target_account_id: Some(target.account.to_string()),
        target_workspace: Some(target.name.clone()),
        ..ImageShare::default()
    };
    engine::create(desk, tx, &[], share)
}

pub(crate) async fn unshare(call: Call<Member>) -> Result<Reply<Image>, Error> {
    call.who.admin()?;
    let (desk, path) = (call.desk(), call.path.all());
    let work = move |tx: &mut Tx<'_>| {
        let [kind, name, target] = path.as_slice() else { return Err(Error::NoRoute) };
        let held = Held::<Image>::lock(&desk, tx, std::slice::from_ref(kind), name)?;
        let mut state = held.state.clone();
        let gone: Vec<_> =
            state.shares.extract_if(.., |share| share.workspace == *target).collect();
        let Some(share) = gone.into_iter().next() else {
            return Err(Error::NotFound(format!("the image is not shared with `{target}`")));
        };
        match (share.pending_share_id, workspaces::find_by_name(tx, target)?) {
            (Some(pending), _) => drop(engine::remove::<ImageShare>(&desk, tx, &[], &pending)?),
            (None, Some(other)) => {
                if let Some(copy) = desk.in_workspace(&other).find(
                    tx,
                    KindName::Image,
                    std::slice::from_ref(kind),
                    name,
                )? {
                    store::resources::delete(tx, &copy, desk.actor())?;
                }
            }
            (None, None) => {}
        }
        let held = engine::change_state(&desk, tx, held, state)?;
        engine::present(&desk, tx, &held, &Secrets::Masked)
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Incoming,
    Outgoing,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct PendingQuery {
    /// Both when absent.
    pub direction: Option<Direction>,
}

/// A pending share and the desk of the workspace that offers it.
type Offer = (Desk, ImageShare);

/// All pending shares that concern a workspace.
fn offers(desk: &Desk, tx: &mut Tx<'_>, direction: Option<Direction>) -> Result<Vec<Offer>, Error> {
    let mut found = Vec::new();
    if direction != Some(Direction::Incoming) {
        let own = engine::everywhere::<ImageShare>(desk, tx)?;
        found.extend(own.into_iter().map(|share| (desk.clone(), share)));
    }
    if direction != Some(Direction::Outgoing) {
        for other in workspaces::list(tx)?.iter().filter(|other| other.id != desk.member.workspace)
        {
            let source = desk.in_workspace(other);
            let offered = engine::everywhere::<ImageShare>(&source, tx)?;
            let mine = offered.into_iter().filter(|share| {
                share.target_workspace.as_deref() == Some(desk.member.workspace_name.as_str())
            });
            found.extend(mine.map(|share| (source.clone(), share)));
        }
    }
    Ok(found)
}

pub(crate) async fn pending(
    call: Call<Member, PendingQuery>,
) -> Result<Reply<Vec<PendingImageShareRender>>, Error> {
    let (desk, direction) = (call.desk(), call.query.direction);
    let work = move |tx: &mut Tx<'_>| {
        let offers = offers(&desk, tx, direction)?;
        offers
            .into_iter()
            .map(|(_, share)| render(&desk, tx, share))
            .collect::<Result<Vec<_>, Error>>()
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn render(
    desk: &Desk,
    tx: &mut Tx<'_>,
    share: ImageShare,
) -> Result<PendingImageShareRender, Error> {
    let named = |tx: &mut Tx<'_>, name: &Option<String>| {
        workspaces::find_by_name(tx, name.as_deref().unwrap_or_default())
    };
    let (source, target) =
        (named(tx, &share.source_workspace)?, named(tx, &share.target_workspace)?);
    let parents = [share.resource_type.clone().unwrap_or_default()];
    let name = share.image_name.clone().unwrap_or_default();
    let conflict = match &target {
        Some(target) => {
            desk.in_workspace(target).find(tx, KindName::Image, &parents, &name)?.is_some()
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

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct AcceptQuery {
    /// Replaces an image of the same name.
    #[serde(default)]
    pub force: Flag,
}

/// The offer that a path names, made to this workspace.
fn offered(desk: &Desk, tx: &mut Tx<'_>, id: &str) -> Result<Offer, Error> {
    let incoming = offers(desk, tx, Some(Direction::Incoming))?;
    let found = incoming.into_iter().find(|(_, share)| share.id.as_deref() == Some(id));
    found.ok_or_else(|| Error::NotFound("no share of this id waits for this workspace".into()))
}

pub(crate) async fn accept(call: Call<Member, AcceptQuery>) -> Result<Reply<Image>, Error> {
    call.who.admin()?;
    let (desk, id, force) = (call.desk(), call.path.name().to_owned(), call.query.force.0);
    let work = move |tx: &mut Tx<'_>| {
        let (source, share) = offered(&desk, tx, &id)?;
        if share.expires_at.is_some_and(|end| end <= desk.world().now()) {
            return Err(Error::Gone("the share has expired; ask for a new one".into()));
        }
        let parents = [share.resource_type.clone().unwrap_or_default()];
        let image = Held::<Image>::lock(
            &source,
            tx,
            &parents,
            share.image_name.as_deref().unwrap_or_default(),
        )?;
        let copy =
            copy_into(&desk, tx, &image.row, &image.state, &source.member.workspace_name, force)?;
        let mut state = image.state.clone();
        for target in
            state.shares.iter_mut().filter(|target| target.pending_share_id.as_deref() == Some(&id))
        {
            (target.status, target.pending_share_id) = (ShareStatus::Active, None);
        }
        engine::change_state(&source, tx, image, state)?;
        engine::remove::<ImageShare>(&source, tx, &[], &id)?;
        engine::present(&desk, tx, &Held::<Image>::read(copy)?, &Secrets::Masked)
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn decline(call: Call<Member>) -> Result<Silent, Error> {
    call.who.admin()?;
    let (desk, id) = (call.desk(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let (source, share) = offered(&desk, tx, &id)?;
        let parents = [share.resource_type.clone().unwrap_or_default()];
        let name = share.image_name.clone().unwrap_or_default();
        if source.find(tx, KindName::Image, &parents, &name)?.is_some() {
            let image = Held::<Image>::lock(&source, tx, &parents, &name)?;
            let mut state = image.state.clone();
            state.shares.retain(|target| target.pending_share_id.as_deref() != Some(&id));
            engine::change_state(&source, tx, image, state)?;
        }
        engine::remove::<ImageShare>(&source, tx, &[], &id).map(drop)
    };
    call.app.store.write(work).await?;
    Ok(Silent)
}
