//! Fires the cron triggers of jobs. Each server watches the clock, and the first one starts the
//! execution.
//!
//! One transaction locks the job's row, decides what is due, moves the trigger's mark and starts the
//! execution. So each due time starts exactly one execution, whatever is killed when.

use super::rows;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::executions::{self, Asked};
use jobs::cron::{Due, Steps, Timed, steps};
use store::Tx;
use store::cron as marks;
use types::ids::ResourceId;
use types::kinds::Job;
use types::{Kind, Timestamp};

/// When the cron triggers of a job need attention: now, if marks are out of date.
pub(super) fn due(
    control: &Control,
    tx: &mut Tx<'_>,
    job: &Held<Job>,
) -> Result<Option<Timestamp>, Error> {
    let now = control.world.now();
    let steps = look(tx, job, now)?;
    let at_once = !(steps.moved.is_empty() && steps.removed.is_empty());
    Ok(if at_once { Some(now) } else { steps.next })
}

/// Starts what is due, and sets the alarm for what comes next.
pub(super) async fn fire(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, job) = (control.clone(), id.clone());
    let next = control.store.write(move |tx| fire_in(&of, tx, &job)).await?;
    control.workloads.alarm.set(id.clone(), Job::NAME, next);
    Ok(())
}

fn fire_in(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
) -> Result<Option<Timestamp>, Error> {
    let Some(job) = rows::lock::<Job>(tx, id)? else { return Ok(None) };
    let Some((context, _)) = rows::context(control, tx, &job.row.workspace)? else {
        return Ok(None);
    };
    let steps = look(tx, &job, control.world.now())?;
    for mark in &steps.moved {
        marks::put(tx, id, mark)?;
    }
    for trigger in &steps.removed {
        marks::remove(tx, id, trigger)?;
    }
    for due in &steps.due {
        begin(&context, tx, &job, due)?;
    }
    Ok(steps.next)
}

fn look(tx: &mut Tx<'_>, job: &Held<Job>, now: Timestamp) -> Result<Steps, Error> {
    let triggers = job.wish.spec.triggers.iter().flatten().filter(|_| job.wish.enabled());
    let timed: Vec<Timed> = triggers.filter_map(Timed::of).collect();
    Ok(steps(&timed, &marks::list(tx, &job.row.id)?, job.row.updated_at, now))
}

/// An execution that cannot be started now cannot be later either: its time has passed.
fn begin(context: &Context, tx: &mut Tx<'_>, job: &Held<Job>, due: &Due) -> Result<(), Error> {
    let triggers = job.wish.spec.triggers.iter().flatten();
    let trigger =
        triggers.into_iter().find(|trigger| trigger.id.as_deref() == Some(due.trigger.as_str()));
    let tasks = trigger
        .and_then(|trigger| trigger.configuration.as_ref()?.tasks.clone())
        .unwrap_or_default();
    let tasks = if tasks.is_empty() { vec![Default::default()] } else { tasks };
    let name = Some(due.execution_name(context.world()));
    match executions::start(context, tx, job, &Asked { name, tasks, ..Asked::default() }) {
        Err(Error::Store(error)) => Err(Error::Store(error)),
        Err(error) => {
            tracing::warn!(%error, job = %job.row.id, trigger = due.trigger, "a cron trigger could not start its job");
            Ok(())
        }
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
