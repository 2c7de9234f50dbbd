//! Kinds with triggers: what starts them other than requests at their own addresses.

use super::{ExecutionRequest, calls};
use crate::context::Context;
use crate::engine::{Held, Managed, opened};
use crate::error::{Conflict, Error};
use crate::json;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jobs::{Call, Caller};
use store::trigger_addresses::{self as addresses, Holder};
use store::{Tx, resources};
use types::KindName;
use types::ids::WorkspaceId;
use types::kinds::{Agent, Function, Job};
use types::parts::Trigger;
use types::usage::Dimension;
use types::wire::Free;

const POST: &str = "POST";
const ROOT: &str = "/";

/// A kind with triggers.
pub trait Triggered: Managed {
    /// What the calls that nobody waits for are billed as. `None` if they cost nothing.
    const CALLS: Option<Dimension> = None;

    /// Starts what a due cron trigger asks for. `name` is the same for one due time, whichever
    /// server starts it.
    fn start_due(
        context: &Context,
        tx: &mut Tx<'_>,
        held: &Held<Self>,
        trigger: Option<&Trigger>,
        _name: String,
    ) -> Result<(), Error> {
        call_each(context, tx, held, trigger)
    }
}

impl Triggered for Agent {
    const CALLS: Option<Dimension> = Some(Dimension::AgentRequests);
}

impl Triggered for Function {}

impl Triggered for Job {
    fn start_due(
        context: &Context,
        tx: &mut Tx<'_>,
        held: &Held<Self>,
        trigger: Option<&Trigger>,
        name: String,
    ) -> Result<(), Error> {
        let asked = ExecutionRequest {
            name: Some(name),
            tasks: tasks(trigger),
            ..ExecutionRequest::default()
        };
        super::start(context, tx, held, &asked).map(drop)
    }
}

/// Returns the tasks that a cron trigger names, or one task without arguments.
fn tasks(trigger: Option<&Trigger>) -> Vec<Free> {
    let named = trigger.and_then(|trigger| trigger.configuration.as_ref()?.tasks.clone());
    named.filter(|tasks| !tasks.is_empty()).unwrap_or_else(|| vec![Free::new()])
}

/// Calls a workload once for each of the tasks that a trigger names.
fn call_each<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    trigger: Option<&Trigger>,
) -> Result<(), Error> {
    let wish = opened(context, held)?;
    let id = trigger.and_then(|trigger| trigger.id.as_deref());
    let trigger = wish.triggers().iter().find(|open| open.id.as_deref() == id);
    for arguments in tasks(trigger) {
        let call = (Caller::Member, call_with(&arguments));
        calls::begin(context, tx, held, trigger, call)?;
    }
    Ok(())
}

/// Returns a call with these arguments, as a caller would make it.
fn call_with(arguments: &Free) -> Call {
    Call {
        method: POST.to_owned(),
        target: ROOT.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: STANDARD.encode(json::text(arguments)),
    }
}

/// Returns the triggers of a row of any kind. Their secrets are sealed.
pub(super) fn triggers_of(row: resources::Stored) -> Result<Vec<Trigger>, Error> {
    fn of<K: Triggered>(row: resources::Stored) -> Result<Vec<Trigger>, Error> {
        Ok(Held::<K>::read(row)?.wish.triggers().to_vec())
    }
    match row.kind {
        KindName::Job => of::<Job>(row),
        KindName::Agent => of::<Agent>(row),
        KindName::Function => of::<Function>(row),
        _ => Ok(Vec::new()),
    }
}

/// Refuses an object that would take addresses which triggers of others have.
pub(crate) fn require_addresses<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    object: &K,
) -> Result<(), Error> {
    let name = object.name();
    for trigger in object.triggers() {
        let Some(address) = trigger.address(K::NAME, name) else { continue };
        let holder = addresses::find(tx, &context.member.workspace, &address)?;
        if holder.is_some_and(|holder| (holder.kind, holder.name.as_str()) != (K::NAME, name)) {
            return Err(Conflict::TriggerAddress { address }.into());
        }
    }
    Ok(())
}

/// Takes the addresses of the triggers that an object has now, and gives back its earlier ones.
pub(crate) fn take_addresses<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    object: &K,
) -> Result<(), Error> {
    let (workspace, name) = (&context.member.workspace, object.name());
    give_back_addresses::<K>(tx, workspace, name)?;
    for trigger in object.triggers() {
        let Some(address) = trigger.address(K::NAME, name) else { continue };
        let id = trigger.id.clone().unwrap_or_default();
        let holder = Holder { kind: K::NAME, name: name.to_owned(), trigger: id };
        if !addresses::take(tx, workspace, &address, &holder)? {
            return Err(Conflict::TriggerAddress { address }.into());
        }
    }
    Ok(())
}

pub(crate) fn give_back_addresses<K: Triggered>(
    tx: &mut Tx<'_>,
    workspace: &WorkspaceId,
    name: &str,
) -> Result<(), Error> {
    Ok(addresses::give_back(tx, workspace, K::NAME, name)?)
}
