//! What is metered of resources: whose usage it is, and what happened. The meter makes sums and
//! bills of it.

use crate::context::Context;
use crate::error::Error;
use crate::workloads::workload::Workload;
use jobs::Hooks;
use meter::{Change, Owner, UsageFact};
use store::Tx;
use store::executions::Execution;
use store::identity::workspaces;
use store::resources::Stored;
use types::ids::ResourceId;
use types::instance::{AttemptId, InstanceName};
use types::kinds::Job;
use types::usage::Dimension;

/// Says whose usage an instance is, in the transaction that gives it to a resource.
pub(crate) fn own_instance<W: Workload>(
    context: &Context,
    tx: &mut Tx<'_>,
    instance: &InstanceName,
    of: (&str, &ResourceId),
    machine: &str,
) -> Result<(), Error> {
    let owner = Owner { machine: Some(machine.to_owned()), ..owner(context, W::DIMENSION, of) };
    Ok(meter::register(tx, instance.as_str(), &owner)?)
}

/// Registers what tasks use with whoever has the job, as this machine takes them.
pub(crate) struct TaskLives {
    /// Without a machine nothing is taken here.
    pub machine: Option<String>,
}

impl Hooks for TaskLives {
    fn claimed(
        &self,
        tx: &mut Tx<'_>,
        attempt: &AttemptId,
        execution: &Execution,
    ) -> Result<(), store::Error> {
        let Some(workspace) = workspaces::find(tx, &execution.workspace)? else { return Ok(()) };
        let owner = Owner {
            account: workspace.account,
            workspace: workspace.name,
            dimension: Job::DIMENSION,
            name: execution.job.clone(),
            uuid: execution.job_id.to_string(),
            machine: self.machine.clone(),
        };
        meter::register(tx, &attempt.to_string(), &owner)
    }
}

/// Notes that a resource serves from now on, or no more: for what is paid by the time in which it
/// does.
pub(crate) fn serve(
    context: &Context,
    tx: &mut Tx<'_>,
    dimension: Dimension,
    of: (&str, &ResourceId),
    serves: bool,
) -> Result<(), Error> {
    let subject = of.1.as_str();
    meter::register(tx, subject, &owner(context, dimension, of))?;
    let fact = UsageFact {
        id: format!("{subject}-{}", context.world().random_text(20)),
        subject: subject.to_owned(),
        number: 0,
        at: context.world().now(),
        stamp: None,
        change: if serves { Change::Activated } else { Change::Deactivated },
    };
    meter::take_in(tx, &[fact])?;
    Ok(())
}

/// Notes how many bytes a repository of images has from now on. Applications are not billed for
/// them. The number rises with the writes of the row: several may fall into one millisecond.
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
    let subject = row.id.as_str();
    meter::register(tx, subject, &owner(context, dimension, (&row.name, &row.id)))?;
    let fact = UsageFact {
        id: format!("{subject}-{}", context.world().random_text(20)),
        subject: subject.to_owned(),
        number,
        at: context.world().now(),
        stamp: None,
        change: Change::Stored { bytes },
    };
    meter::take_in(tx, &[fact])?;
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
