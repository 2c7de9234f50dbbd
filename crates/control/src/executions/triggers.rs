//! Triggers of jobs that requests fire: which one answers at an address, and what it starts.

use super::Asked;
use crate::context::Context;
use crate::control::Control;
use crate::engine::{Held, opened};
use crate::error::{Error, Unfit};
use store::deliveries::{self, NewDelivery};
use store::identity::workspaces::{self, Workspace};
use store::trigger_addresses as addresses;
use store::{Tx, resources};
use types::Kind;
use types::ids::ExecutionId;
use types::kinds::Job;
use types::parts::{Trigger, TriggerType};
use types::wire::Free;

/// Of the calls that wait for the end of an execution, there is the most that there may be.
const BUSY_S: u64 = 60;

/// A trigger, and whose it is.
pub struct Found {
    pub workspace: Workspace,
    pub trigger: Trigger,
}

/// The trigger that answers at an address of a workspace.
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
        let job = Held::<Job>::read(row)?;
        Ok::<_, Error>(
            trigger(&job.wish, &holder.trigger)
                .map(|trigger| Found { workspace, trigger: trigger.clone() }),
        )
    };
    control.store.read(work).await
}

fn trigger<'j>(job: &'j Job, id: &str) -> Option<&'j Trigger> {
    job.spec.triggers.iter().flatten().find(|trigger| trigger.id.as_deref() == Some(id))
}

/// Starts the execution of the trigger at an address, and notes whom to tell of its end; `None` when
/// no trigger is there any more.
pub fn begin(
    context: &Context,
    tx: &mut Tx<'_>,
    address: &str,
    arguments: Free,
) -> Result<Option<ExecutionId>, Error> {
    let workspace = &context.member.workspace;
    let Some(holder) = addresses::find(tx, workspace, address)? else { return Ok(None) };
    let job = Held::<Job>::lock(context, tx, &[], &holder.name)?;
    let wish = opened(context, &job)?;
    let Some(trigger) = trigger(&wish, &holder.trigger) else { return Ok(None) };
    if !trigger.is_on() {
        return Err(Unfit::TriggerDisabled.into());
    }
    let set = trigger.configuration.clone().unwrap_or_default();
    let name = format!(
        "{}-{}",
        holder.trigger.chars().take(40).collect::<String>(),
        context.world().random_text(12)
    );
    let wanted = Asked {
        name: Some(name),
        tasks: vec![arguments],
        timeout_s: set.timeout,
        ..Asked::default()
    };
    let begun = super::start(context, tx, &job, &wanted)?;
    if let Some(url) = set.callback().filter(|_| trigger.kind == Some(TriggerType::HttpAsync)) {
        let new = NewDelivery {
            workspace: workspace.clone(),
            kind: Job::NAME.name().to_owned(),
            name: job.row.name.clone(),
            execution: Some(begun.name.clone()),
            url: url.to_owned(),
            secret: set.callback_secret.clone(),
            attempts_max: set.retry.map(|retries| retries.saturating_add(1)),
        };
        deliveries::enqueue_at_end(tx, &new, &begun.id)?
            .ok_or(Error::TooMany { retry_after_s: BUSY_S })?;
    }
    Ok(Some(begun.id))
}
