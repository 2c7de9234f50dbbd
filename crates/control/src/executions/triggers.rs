//! Triggers that requests fire: which one answers at an address, and what it starts.

use super::ExecutionRequest;
use super::calls;
use super::triggered::{Triggered, triggers_of};
use crate::context::Context;
use crate::control::Control;
use crate::engine::{Held, opened};
use crate::error::{Error, Unfit};
use jobs::{Call, Caller};
use store::identity::workspaces::{self, Workspace};
use store::trigger_addresses::{self as addresses, Holder};
use store::{Tx, resources};
use types::ids::{ExecutionId, ResourceId};
use types::kinds::{Agent, Function, Job};
use types::parts::{Trigger, TriggerType};
use types::wire::Free;
use types::{Kind, KindName};

/// A trigger, and the object it belongs to.
pub struct Found {
    pub workspace: Workspace,
    pub kind: KindName,
    pub trigger: Trigger,
}

/// Finds the trigger that answers at an address of a workspace.
pub async fn look_up(
    control: &Control,
    workspace: &str,
    address: &str,
) -> Result<Option<Found>, Error> {
    let (workspace, address) = (workspace.to_owned(), address.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(workspace) = workspaces::find_by_name(tx, &workspace)? else { return Ok(None) };
        let Some(holder) = addresses::find(tx, &workspace.id, &address)? else { return Ok(None) };
        let Some(row) = resources::find(tx, &workspace.id, holder.kind, "", &holder.name)? else {
            return Ok(None);
        };
        let trigger = triggers_of(row)?
            .into_iter()
            .find(|trigger| trigger.id.as_deref() == Some(holder.trigger.as_str()));
        Ok::<_, Error>(trigger.map(|trigger| Found { workspace, kind: holder.kind, trigger }))
    };
    control.store.read(work).await
}

/// A deployment that is called without its caller waiting.
pub struct Called {
    pub workspace: Workspace,
    pub kind: KindName,
    pub id: ResourceId,
    /// Whether it may be called without credentials.
    pub public: bool,
}

/// Finds the deployment of this name in a workspace, if its kind can be called without waiting.
pub async fn look_up_deployment(
    control: &Control,
    workspace: &str,
    (kind, name): (KindName, &str),
) -> Result<Option<Called>, Error> {
    let (workspace, name) = (workspace.to_owned(), name.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(workspace) = workspaces::find_by_name(tx, &workspace)? else { return Ok(None) };
        let Some(row) = resources::find(tx, &workspace.id, kind, "", &name)? else {
            return Ok(None);
        };
        let id = row.id.clone();
        let public = match kind {
            KindName::Agent => Held::<Agent>::read(row)?.wish.spec.public,
            KindName::Function => Held::<Function>::read(row)?.wish.spec.public,
            _ => return Ok::<_, Error>(None),
        };
        Ok(Some(Called { workspace, kind, id, public: public == Some(true) }))
    };
    control.store.read(work).await
}

/// Finds a trigger of an object whose secrets are opened. Refuses one that is off.
fn trigger_on<'t, K: Triggered>(wish: &'t K, id: &str) -> Result<Option<&'t Trigger>, Error> {
    let trigger = wish.triggers().iter().find(|trigger| trigger.id.as_deref() == Some(id));
    match trigger {
        Some(trigger) if !trigger.is_on() => Err(Unfit::TriggerDisabled.into()),
        found => Ok(found),
    }
}

/// Accepts a call to the workload whose trigger is at an address, and notes whom to tell of its
/// end. `None` if there is no such trigger any more.
pub fn call(
    context: &Context,
    tx: &mut Tx<'_>,
    address: &str,
    call: (Caller, Call),
) -> Result<Option<ExecutionId>, Error> {
    let Some(holder) = addresses::find(tx, &context.member.workspace, address)? else {
        return Ok(None);
    };
    match holder.kind {
        KindName::Agent => begin_call::<Agent>(context, tx, &holder, call),
        KindName::Function => begin_call::<Function>(context, tx, &holder, call),
        _ => Ok(None),
    }
}

/// Accepts a call to the workload whose trigger answers.
fn begin_call<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    holder: &Holder,
    call: (Caller, Call),
) -> Result<Option<ExecutionId>, Error> {
    let workload = Held::<K>::lock(context, tx, &[], &holder.name)?;
    let wish = opened(context, &workload)?;
    let Some(trigger) = trigger_on(&wish, &holder.trigger)? else { return Ok(None) };
    calls::begin(context, tx, &workload, Some(trigger), call).map(Some)
}

/// Starts the execution of the job whose trigger is at an address, and notes whom to tell of its
/// end. `None` if there is no such trigger any more.
pub fn begin(
    context: &Context,
    tx: &mut Tx<'_>,
    address: &str,
    (caller, arguments): (Caller, Free),
) -> Result<Option<ExecutionId>, Error> {
    let workspace = &context.member.workspace;
    let Some(holder) = addresses::find(tx, workspace, address)? else { return Ok(None) };
    if holder.kind != Job::NAME {
        return Ok(None);
    }
    let job = Held::<Job>::lock(context, tx, &[], &holder.name)?;
    let wish = opened(context, &job)?;
    let Some(trigger) = trigger_on(&wish, &holder.trigger)? else { return Ok(None) };
    let set = trigger.configuration.clone().unwrap_or_default();
    let name = format!(
        "{}-{}",
        holder.trigger.chars().take(40).collect::<String>(),
        context.world().random_text(12)
    );
    let wanted = ExecutionRequest {
        name: Some(name),
        tasks: vec![arguments],
        timeout_s: set.timeout,
        caller,
        ..ExecutionRequest::default()
    };
    let begun = super::start(context, tx, &job, &wanted)?;
    if trigger.kind == Some(TriggerType::HttpAsync) {
        calls::tell_at_end(context, tx, &begun, &set)?;
    }
    Ok(Some(begun.id))
}
