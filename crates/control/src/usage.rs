//! What is metered of resources: the owner of each life, and the facts about it. The meter turns
//! them into sums and bills.

use crate::context::Context;
use crate::error::Error;
use crate::workloads::workload::{Workload, has_price};
use jobs::Hooks;
use meter::{Change, Owner, UsageFact};
use store::Tx;
use store::executions::Execution;
use store::identity::workspaces;
use store::resources::{self, Stored};
use types::Kind;
use types::ids::{ExecutionId, ResourceId};
use types::instance::{AttemptId, InstanceName, RunsFor};
use types::kinds::Job;
use types::usage::Dimension;

/// Registers the owner of an instance's usage, in the transaction that gives the instance to a
/// resource.
pub(crate) fn own_instance<W: Workload>(
    context: &Context,
    tx: &mut Tx<'_>,
    instance: &InstanceName,
    of: (&str, &ResourceId),
    machine: &str,
) -> Result<(), Error> {
    let Some(dimension) = W::DIMENSION else { return Ok(()) };
    let owner = Owner { machine: Some(machine.to_owned()), ..owner(context, dimension, of) };
    Ok(meter::register(tx, instance.as_str(), &owner)?)
}

/// Checks whether an instance's usage is charged to anybody. Builds cost nothing.
pub(crate) fn is_metered(tx: &mut Tx<'_>, instance: &InstanceName) -> Result<bool, store::Error> {
    match instance.runs_for() {
        Some(RunsFor::Build(_)) => Ok(false),
        Some(RunsFor::Replica(replica)) => match resources::find_by_id(tx, &replica.workload)? {
            Some(row) => Ok(has_price(row.kind)),
            None => store::usage::is_owned(tx, instance.as_str()),
        },
        Some(RunsFor::Sandbox { .. } | RunsFor::Task(_)) | None => Ok(true),
    }
}

/// Registers the owner of a job as the owner of its tasks' usage, when this machine claims them.
pub(crate) struct TaskLives {
    /// The name of this machine. A server without a machine claims nothing.
    pub machine: Option<String>,
}

impl Hooks for TaskLives {
    fn claimed(
        &self,
        tx: &mut Tx<'_>,
        attempt: &AttemptId,
        execution: &Execution,
    ) -> Result<(), store::Error> {
        // A call runs nothing of its own; the workload that answers it is metered itself.
        if execution.kind != Job::NAME {
            return Ok(());
        }
        let Some(dimension) = Job::DIMENSION else { return Ok(()) };
        let Some(workspace) = workspaces::find(tx, &execution.workspace)? else { return Ok(()) };
        let owner = Owner {
            account: workspace.account,
            workspace: workspace.name,
            dimension,
            name: execution.job.clone(),
            uuid: execution.job_id.to_string(),
            machine: self.machine.clone(),
        };
        meter::register(tx, &attempt.to_string(), &owner)
    }
}

/// Notes that a resource serves from now on, or no longer does, for what is billed by the time that
/// it serves.
pub(crate) fn serve(
    context: &Context,
    tx: &mut Tx<'_>,
    dimension: Dimension,
    of: (&str, &ResourceId),
    serves: bool,
) -> Result<(), Error> {
    let change = if serves { Change::Activated } else { Change::Deactivated };
    note(context, tx, of.1, &owner(context, dimension, of), (0, change))
}

/// Counts a call to a workload that its caller did not wait for.
pub(crate) fn count_call(
    context: &Context,
    tx: &mut Tx<'_>,
    dimension: Dimension,
    of: (&str, &ResourceId),
    call: &ExecutionId,
) -> Result<(), Error> {
    let subject = format!("{}-calls", of.1);
    meter::register(tx, &subject, &owner(context, dimension, of))?;
    let fact = UsageFact {
        id: call.to_string(),
        subject,
        number: 0,
        at: context.world().now(),
        stamp: None,
        change: Change::Requested { count: 1 },
    };
    meter::take_in(tx, &[fact])?;
    Ok(())
}

/// Notes the size of an image repository from now on. Applications are not billed for it. `number`
/// rises with each write of the row, because several writes may fall into one millisecond.
pub(crate) fn store_image(
    context: &Context,
    tx: &mut Tx<'_>,
    row: &Stored,
    bytes: u64,
    number: u64,
) -> Result<(), Error> {
    let dimension = match row.parent.as_str() {
        "agent" => Dimension::AgentImages,
        "function" => Dimension::McpServerImages,
        "job" => Dimension::JobImages,
        "sandbox" => Dimension::SandboxImages,
        _ => return Ok(()),
    };
    store(context, tx, dimension, (&row.name, &row.id), (bytes, number))
}

/// Notes the size of a resource from now on. `number` rises with each note.
pub(crate) fn store(
    context: &Context,
    tx: &mut Tx<'_>,
    dimension: Dimension,
    of: (&str, &ResourceId),
    (bytes, number): (u64, u64),
) -> Result<(), Error> {
    let owner = owner(context, dimension, of);
    note(context, tx, of.1, &owner, (number, Change::Stored { bytes }))
}

/// Notes the size of a sandbox's snapshot from now on. The sandbox itself may be gone.
pub(crate) fn store_snapshot(
    context: &Context,
    tx: &mut Tx<'_>,
    snapshot: &ResourceId,
    sandbox: (&str, &ResourceId),
    (bytes, number): (u64, u64),
) -> Result<(), Error> {
    let owner = owner(context, Dimension::SandboxSnapshots, sandbox);
    note(context, tx, snapshot, &owner, (number, Change::Stored { bytes }))
}

/// Notes a change of a resource that happens now, after all that were noted before.
fn note(
    context: &Context,
    tx: &mut Tx<'_>,
    subject: &ResourceId,
    owner: &Owner,
    (number, change): (u64, Change),
) -> Result<(), Error> {
    meter::register(tx, subject.as_str(), owner)?;
    let fact = UsageFact {
        id: format!("{subject}-{}", context.world().random_text(20)),
        subject: subject.to_string(),
        number,
        at: context.world().now(),
        stamp: None,
        change,
    };
    meter::take_next(tx, fact)?;
    Ok(())
}

fn owner(context: &Context, dimension: Dimension, (name, id): (&str, &ResourceId)) -> Owner {
    Owner {
        account: context.member.account.clone(),
        workspace: context.member.workspace_name.clone(),
        dimension,
        name: name.to_owned(),
        uuid: id.to_string(),
        machine: None,
    }
}
