//! Custom domains: anybody may register one; one workspace of the server has it verified, and
//! shares it with others.

use crate::addresses;
use crate::context::Context;
use crate::control::Control;
use crate::domains::{Claim, Fault};
use crate::engine::{self, Draft, Held, Managed, Paging, Secrets};
use crate::error::{Absent, Conflict, Error, Forbidden, Unfit};
use crate::json;
use crate::usage;
use crate::workloads::rows;
use store::edge_names::{self, Taken};
use store::identity::workspaces::{self, Workspace};
use store::{Tx, resources};
use types::edge::domain_name;
use types::kinds::custom_domain::{DomainStatus, DomainType, State};
use types::kinds::{Application, CustomDomain};
use types::usage::Dimension;
use types::wire::{CustomDomainShareTarget, ShareStatus};
use types::{Kind, KindName, Problems, Timestamp};

/// Names every other workspace of the account as the target of a share.
const WHOLE_ACCOUNT: &str = "account";

impl Managed for CustomDomain {
    const PAGING: Paging = Paging::Bare;

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        require_fallback(context, tx, draft.wish)?;
        if draft.old.is_some() {
            return refuse_copy(draft.state);
        }
        let name = draft.wish.name().to_owned();
        addresses::refuse_own(context, &name, "metadata.name".into())?;
        let proof = context.world().random_text(32);
        draft.state.txt_records =
            [(format!("_holm-challenge.{name}"), format!("holm-verification={proof}"))].into();
        let target = types::hosts::record_target(&context.control.settings.public_url, "domains");
        draft.state.cname_records = Some(target);
        Ok(())
    }

    fn require_unused(_: &Context, _: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        refuse_copy(&held.state)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        if let Some(owner) = &held.state.shared_from_workspace {
            return forget_share(context, tx, &held.row.name, owner);
        }
        if is_served(&held.state) {
            usage::serve(
                context,
                tx,
                Dimension::CustomDomainTime,
                (&held.row.name, &held.row.id),
                false,
            )?;
        }
        for name in &held.state.shared_with {
            withdraw(context, tx, &held.row.name, name)?;
        }
        Ok(())
    }
}

/// Refuses changes to a domain that another workspace shares, which is read-only here.
fn refuse_copy(state: &State) -> Result<(), Error> {
    match &state.shared_from_workspace {
        Some(owner) => Err(Forbidden::DomainOfOther { owner: owner.clone() }.into()),
        None => Ok(()),
    }
}

/// Checks the fallback of a domain, which must be of the kind that the domain is for.
fn require_fallback(context: &Context, tx: &mut Tx<'_>, wish: &CustomDomain) -> Result<(), Error> {
    let Some(name) = wish.spec.fallback_preview_id.as_deref() else { return Ok(()) };
    let (what, found) = match wish.spec.domain_type.unwrap_or_default() {
        DomainType::Applications => {
            let application = context.find(tx, KindName::Application, &[], name)?;
            ("application", application.is_some())
        }
        DomainType::Previews => {
            let workspace = &context.member.workspace;
            let previews = resources::named(tx, workspace, KindName::Preview, name)?;
            ("preview", !previews.is_empty())
        }
    };
    if found {
        return Ok(());
    }
    let why = format!("names no {what} of this workspace");
    Err(Problems::one("spec.fallbackPreviewId", why).into())
}

/// Registers a domain for one application, which answers for all hosts that nothing else has.
pub fn create_for_application(
    context: &Context,
    tx: &mut Tx<'_>,
    application: &str,
    mut wish: CustomDomain,
) -> Result<CustomDomain, Error> {
    Held::<Application>::get(context, tx, &[], application)?;
    wish.spec.domain_type = Some(DomainType::Applications);
    wish.spec.fallback_preview_id.get_or_insert_with(|| application.to_owned());
    engine::create(context, tx, &[], wish)
}

/// Asks the DNS whether the domain belongs to the workspace, and records the result.
pub async fn verify(context: &Context, name: &str) -> Result<CustomDomain, Error> {
    let store = &context.control.store;
    let claim = {
        let (context, name) = (context.clone(), name.to_owned());
        store.read(move |tx| claim(&Held::get(&context, tx, &[], &name)?)).await?
    };
    let found = claim.check(&*context.control.dns).await;
    let lapsed = if found.is_ok() { lapsed(context, name).await? } else { None };
    let (context, name) = (context.clone(), name.to_owned());
    let note = move |tx: &mut Tx<'_>| {
        if let Some(lapsed) = &lapsed {
            lapsed.give_up(tx)?;
        }
        let held = note_verdict(&context, tx, &name, &claim, &found)?;
        engine::present(&context, tx, &held, &Secrets::Masked)
    };
    store.write(note).await
}

/// The claim of a workspace that has a domain verified though its record is gone.
struct Lapsed {
    owner: Context,
    claim: Claim,
    fault: Fault,
}

impl Lapsed {
    fn give_up(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let Self { owner, claim, fault } = self;
        let name = &claim.domain;
        match registration_of_owner(&owner.control, tx, name)? {
            Some((_, held)) if self::claim(&held)?.proof == claim.proof => {
                note_verdict(owner, tx, name, claim, &Err(fault.clone())).map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Returns the claim of another workspace that has the domain, if its record is gone. A domain that
/// has changed hands would stay with whoever had it before, who has no reason to have it checked.
async fn lapsed(context: &Context, name: &str) -> Result<Option<Lapsed>, Error> {
    let (control, domain) = (context.control.clone(), name.to_owned());
    let find = move |tx: &mut Tx<'_>| registration_of_owner(&control, tx, &domain);
    let other = |owner: &Context| owner.member.workspace != context.member.workspace;
    let found = context.control.store.read(find).await?;
    let Some((owner, held)) = found.filter(|(owner, _)| other(owner)) else { return Ok(None) };
    let claim = claim(&held)?;
    Ok(match claim.check(&*context.control.dns).await {
        Err(fault @ Fault::Unproven { .. }) => Some(Lapsed { owner, claim, fault }),
        _ => None,
    })
}

/// Returns the workspace that has a domain, as the server itself works in it, and what it
/// registered.
fn registration_of_owner(
    control: &Control,
    tx: &mut Tx<'_>,
    domain: &str,
) -> Result<Option<(Context, Held<CustomDomain>)>, Error> {
    let Some(holder) = edge_names::holder(tx, &domain_name(domain))? else { return Ok(None) };
    let Some((owner, _)) = rows::context(control, tx, &holder.workspace)? else { return Ok(None) };
    Ok(rows::find(tx, &holder.resource)?.map(|held| (owner, held)))
}

fn note_verdict(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    claim: &Claim,
    found: &Result<(), Fault>,
) -> Result<Held<CustomDomain>, Error> {
    let held = Held::<CustomDomain>::lock(context, tx, &[], name)?;
    if self::claim(&held)?.proof != claim.proof {
        return Err(Conflict::DomainRegisteredAnew.into());
    }
    let state = judged(held.state.clone(), found, context.world().now());
    if is_served(&state) != is_served(&held.state) {
        let of = (held.row.name.as_str(), &held.row.id);
        usage::serve(context, tx, Dimension::CustomDomainTime, of, is_served(&state))?;
    }
    keep_to_one(context, tx, &held, &state)?;
    for workspace in &state.shared_with {
        judge_copy(context, tx, name, workspace, &state)?;
    }
    engine::change_state(context, tx, held, state)
}

/// Makes a verified domain belong to this workspace alone in the whole server, or gives it back.
fn keep_to_one(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<CustomDomain>,
    state: &State,
) -> Result<(), Error> {
    if state.status != DomainStatus::Verified {
        return Ok(edge_names::give_back(tx, &held.row.id)?);
    }
    let wanted = addresses::holder(context, &held.row.id);
    match edge_names::take(tx, &domain_name(&held.row.name), &wanted)? {
        Taken::Own => Ok(()),
        Taken::By(_) => Err(Conflict::DomainInUse { name: held.row.name.clone() }.into()),
    }
}

/// Checks whether a domain is verified for the workspace, or was shared with it.
pub(crate) fn is_verified(context: &Context, tx: &mut Tx<'_>, domain: &str) -> Result<bool, Error> {
    let held = Held::<CustomDomain>::find(context, tx, &[], domain)?;
    Ok(held.is_some_and(|held| held.state.status == DomainStatus::Verified))
}

/// Checks whether the domain's time is charged for.
fn is_served(state: &State) -> bool {
    state.status == DomainStatus::Verified
}

fn claim(held: &Held<CustomDomain>) -> Result<Claim, Error> {
    refuse_copy(&held.state)?;
    let gone = || Error::from(Forbidden::DomainWithoutRecords);
    let proof = held.state.txt_records.iter().next().ok_or_else(gone)?;
    Ok(Claim {
        domain: held.row.name.clone(),
        proof: (proof.0.clone(), proof.1.clone()),
        target: held.state.cname_records.clone().unwrap_or_default(),
    })
}

/// Returns the state after a check. A verified domain stays verified if name servers do not answer.
fn judged(mut state: State, found: &Result<(), Fault>, now: Timestamp) -> State {
    state.verification_error = found.as_ref().err().map(ToString::to_string);
    state.status = match (found, state.status) {
        (Ok(()), _) => DomainStatus::Verified,
        (Err(Fault::NoAnswer(_)), DomainStatus::Verified) => DomainStatus::Verified,
        (Err(_), _) => DomainStatus::Failed,
    };
    if found.is_ok() {
        state.last_verified_at = Some(now);
    }
    state
}

/// Brings a copy up to date. Its workspace may be gone, and the copy with it.
fn judge_copy(
    context: &Context,
    tx: &mut Tx<'_>,
    domain: &str,
    workspace: &str,
    owner: &State,
) -> Result<(), Error> {
    let Some(copy) = copy_in(context, tx, domain, workspace)? else { return Ok(()) };
    let state = State {
        status: owner.status,
        last_verified_at: owner.last_verified_at,
        verification_error: owner.verification_error.clone(),
        ..copy.state.clone()
    };
    engine::change_state(context, tx, copy, state).map(drop)
}

/// Returns the workspaces that a domain is shared with.
pub fn shares(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
) -> Result<Vec<CustomDomainShareTarget>, Error> {
    let held = Held::<CustomDomain>::get(context, tx, &[], name)?;
    let mut targets = Vec::new();
    for workspace in held.state.shared_with {
        let known = in_account(context, tx, &workspace)?;
        let workspace_display_name = known.map(|known| known.display_name);
        targets.push(CustomDomainShareTarget {
            status: ShareStatus::Active,
            workspace,
            workspace_display_name,
        });
    }
    Ok(targets)
}

/// Shares a domain with another workspace of the account, or with all of them.
pub fn share(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    target: &str,
) -> Result<CustomDomain, Error> {
    let held = Held::<CustomDomain>::lock(context, tx, &[], name)?;
    refuse_copy(&held.state)?;
    if held.state.status != DomainStatus::Verified
        || held.wish.spec.domain_type == Some(DomainType::Applications)
    {
        return Err(Unfit::DomainUnverified.into());
    }
    let mut state = held.state.clone();
    for other in targets(context, tx, target)? {
        if state.shared_with.contains(&other.name) {
            return Err(Conflict::DomainShared { workspace: other.name }.into());
        }
        hand_over(&context.in_workspace(&other), tx, &held, &context.member.workspace_name)?;
        state.shared_with.push(other.name);
    }
    let held = engine::change_state(context, tx, held, state)?;
    engine::present(context, tx, &held, &Secrets::Masked)
}

/// Returns the workspaces that a share names.
fn targets(context: &Context, tx: &mut Tx<'_>, target: &str) -> Result<Vec<Workspace>, Error> {
    let others = workspaces::list_of_account(tx, &context.member.account)?;
    let mut others: Vec<Workspace> =
        others.into_iter().filter(|other| other.id != context.member.workspace).collect();
    if target != WHOLE_ACCOUNT {
        others.retain(|other| other.name == target);
        if others.is_empty() {
            return Err(Absent::OtherWorkspace { name: target.to_owned() }.into());
        }
    }
    Ok(others)
}

/// Puts a read-only copy into the target workspace.
fn hand_over(
    target: &Context,
    tx: &mut Tx<'_>,
    held: &Held<CustomDomain>,
    owner: &str,
) -> Result<(), Error> {
    auth::workspaces::keep(tx, &target.member)?;
    if let Some(own) = Held::<CustomDomain>::find(target, tx, &[], &held.row.name)?
        && own.state.shared_from_workspace.is_none()
    {
        // It was only registered there: the domain is verified for the workspace that shares it.
        resources::delete(tx, &own.row, target.actor())?;
    }
    let mut row = held.row.clone();
    row.id = types::ids::ResourceId::new(target.world());
    row.workspace = target.member.workspace.clone();
    let state = State {
        shared_from_workspace: Some(owner.to_owned()),
        shared_with: Vec::new(),
        ..held.state.clone()
    };
    row.state = json::text(&state);
    let taken =
        |_| Conflict::DomainThere { workspace: target.member.workspace_name.clone() }.into();
    resources::insert(tx, row).map(drop).map_err(taken)
}

/// Takes a domain back from a workspace, or from all of them.
pub fn unshare(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    target: &str,
) -> Result<CustomDomain, Error> {
    let held = Held::<CustomDomain>::lock(context, tx, &[], name)?;
    let mut state = held.state.clone();
    state.shared_with.retain(|workspace| *workspace != target && target != WHOLE_ACCOUNT);
    if state.shared_with.len() == held.state.shared_with.len() {
        return Err(Absent::DomainShare { workspace: target.to_owned() }.into());
    }
    let withdrawn = held.state.shared_with.iter().filter(|name| !state.shared_with.contains(name));
    for workspace in withdrawn {
        withdraw(context, tx, name, workspace)?;
    }
    let held = engine::change_state(context, tx, held, state)?;
    engine::present(context, tx, &held, &Secrets::Masked)
}

/// Removes the copy from a workspace. The workspace may be gone, and the copy with it.
fn withdraw(
    context: &Context,
    tx: &mut Tx<'_>,
    domain: &str,
    workspace: &str,
) -> Result<(), Error> {
    match copy_in(context, tx, domain, workspace)? {
        Some(copy) => Ok(resources::delete(tx, &copy.row, context.actor())?),
        None => Ok(()),
    }
}

/// Returns the copy that another workspace has of a domain of this one. The workspace of that name
/// may be another one by now, with a domain of its own.
fn copy_in(
    context: &Context,
    tx: &mut Tx<'_>,
    domain: &str,
    workspace: &str,
) -> Result<Option<Held<CustomDomain>>, Error> {
    let Some(other) = in_account(context, tx, workspace)? else { return Ok(None) };
    let copy = Held::<CustomDomain>::find(&context.in_workspace(&other), tx, &[], domain)?;
    let owner = Some(&context.member.workspace_name);
    Ok(copy.filter(|copy| copy.state.shared_from_workspace.as_ref() == owner))
}

/// Finds a workspace of the account. Domains are shared only within one.
fn in_account(context: &Context, tx: &mut Tx<'_>, name: &str) -> Result<Option<Workspace>, Error> {
    let found = workspaces::find_by_name(tx, name)?;
    Ok(found.filter(|workspace| workspace.account == context.member.account))
}

/// Removes this workspace from those that a domain is shared with, because its copy goes.
fn forget_share(
    context: &Context,
    tx: &mut Tx<'_>,
    domain: &str,
    owner: &str,
) -> Result<(), Error> {
    let Some(owner) = in_account(context, tx, owner)? else { return Ok(()) };
    let owner = context.in_workspace(&owner);
    let Some(held) = Held::<CustomDomain>::find(&owner, tx, &[], domain)? else { return Ok(()) };
    let mut state = held.state.clone();
    state.shared_with.retain(|name| *name != context.member.workspace_name);
    engine::change_state(&owner, tx, held, state).map(drop)
}
