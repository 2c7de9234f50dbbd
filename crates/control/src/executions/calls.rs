//! Calls to workloads that nobody waits for: accepted at once, made by the queue, and reported at
//! the end if the trigger asks for it. A call is an execution with one task, which asks the
//! workload and runs nothing of its own.

use super::triggered::Triggered;
use crate::billing::allow;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::{Absent, Error, Unfit};
use crate::usage;
use crate::workloads::rows;
use jobs::{Call, Caller, NewExecution, Plan};
use store::Tx;
use store::deliveries::{self, NewDelivery};
use store::executions::Execution;
use types::KindName;
use types::ids::{ExecutionId, ResourceId};
use types::kinds::{Agent, Function};
use types::parts::{Sensitive, Trigger, TriggerConfiguration};

/// A call takes no memory of its own.
const MEMORY_MB: i64 = 0;
/// How long a call may take unless its trigger says less.
const TIME_MAX_S: u32 = 900;
/// When to try again if the most calls with a report at their end are in progress.
const BUSY_S: u64 = 60;
const NO_ARGUMENTS: &str = "{}";

/// Accepts a call to a workload that this transaction has locked. The secrets of the trigger are
/// opened.
pub fn begin<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    workload: &Held<K>,
    trigger: Option<&Trigger>,
    (caller, call): (Caller, Call),
) -> Result<ExecutionId, Error> {
    if !workload.wish.enabled() {
        return Err(Unfit::Disabled { kind: K::NAME.name() }.into());
    }
    allow(context, tx)?;
    let set = trigger.and_then(|trigger| trigger.configuration.clone()).unwrap_or_default();
    let id = ExecutionId::new(context.world());
    let new = NewExecution {
        workspace: context.member.workspace.clone(),
        kind: K::NAME,
        job_id: workload.row.id.clone(),
        job: workload.row.name.clone(),
        machine: K::machine(&workload.state).map(str::to_owned),
        name: id.to_string(),
        memory_mb: MEMORY_MB,
        retries_max: set.retry.unwrap_or(0),
        parallelism: None,
        plan: plan(&set, workload.wish.request_timeout_s(), call),
        tasks: vec![NO_ARGUMENTS.to_owned()],
        may_wait: true,
        caller,
        id: id.clone(),
    };
    let keyring = context.control.store.keyring();
    let begun = context.control.queue.start(tx, &keyring.read(), &new)?;
    tell_at_end(context, tx, &begun, &set)?;
    if let Some(dimension) = K::CALLS {
        let of = (workload.row.name.as_str(), &workload.row.id);
        usage::count_call(context, tx, dimension, of, &id)?;
    }
    Ok(id)
}

/// Accepts a call to a workload at its own address.
pub async fn accept(
    control: &Control,
    (kind, id): (KindName, &ResourceId),
    call: (Caller, Call),
) -> Result<ExecutionId, Error> {
    match kind {
        KindName::Agent => accept_of::<Agent>(control, id, call).await,
        KindName::Function => accept_of::<Function>(control, id, call).await,
        _ => Err(Absent::Workload.into()),
    }
}

async fn accept_of<K: Triggered>(
    control: &Control,
    id: &ResourceId,
    call: (Caller, Call),
) -> Result<ExecutionId, Error> {
    let (of, id) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let (context, held) = rows::lock_in::<K>(&of, tx, &id)?.ok_or(Absent::Workload)?;
        begin(&context, tx, &held, None, call.clone())
    };
    control.store.write(work).await
}

/// What a trigger says about its calls takes precedence over what the workload says about all
/// requests.
fn plan(set: &TriggerConfiguration, of_all: Option<i64>, call: Call) -> Plan {
    let asked = set.timeout.or(of_all).map_or(TIME_MAX_S, seconds);
    Plan { timeout_s: Some(asked.min(TIME_MAX_S)), call: Some(Sensitive(call)), ..Plan::default() }
}

/// Converts a time in seconds; one too large to count is beyond every limit anyway.
pub(crate) fn seconds(asked: i64) -> u32 {
    u32::try_from(asked).unwrap_or(u32::MAX)
}

/// Notes whom to tell of the end of an execution, if its trigger says so.
pub(super) fn tell_at_end(
    context: &Context,
    tx: &mut Tx<'_>,
    begun: &Execution,
    set: &TriggerConfiguration,
) -> Result<(), Error> {
    let Some(url) = set.callback() else { return Ok(()) };
    let new = NewDelivery {
        workspace: context.member.workspace.clone(),
        kind: begun.kind.name().to_owned(),
        name: begun.job.clone(),
        execution: Some(begun.name.clone()),
        url: url.to_owned(),
        secret: set.callback_secret.clone(),
        attempts_max: set.retry.map(|retries| retries.saturating_add(1)),
    };
    deliveries::enqueue_at_end(tx, &new, &begun.id)?
        .map(drop)
        .ok_or(Error::TooMany { retry_after_s: BUSY_S })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(of_trigger: Option<i64>, of_all: Option<i64>, expected: u32) {
        let set = TriggerConfiguration { timeout: of_trigger, ..Default::default() };
        let call = Call {
            method: "POST".into(),
            target: "/".into(),
            headers: Vec::new(),
            body: String::new(),
        };
        assert_eq!(plan(&set, of_all, call).timeout_s, Some(expected));
    }

    #[test]
    fn a_call_may_take_what_its_trigger_says_else_its_workload() {
        check(None, None, TIME_MAX_S);
        check(None, Some(30), 30);
        check(Some(60), Some(30), 60);
        check(None, Some(i64::MAX), TIME_MAX_S);
    }
}
