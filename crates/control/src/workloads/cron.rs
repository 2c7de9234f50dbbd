//! Fires the cron triggers of jobs and deployments. Each server watches the clock, and the first one
//! starts the execution.
//!
//! One transaction locks the row, decides what is due, moves the trigger's mark and starts the
//! execution. So each due time starts exactly one execution, whatever is killed when.

use super::rows;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::executions::triggered::Triggered;
use jobs::cron::{Due, Steps, Timed, steps};
use std::collections::BTreeSet;
use store::Tx;
use store::cron as marks;
use types::Timestamp;
use types::ids::ResourceId;

/// Returns when the cron triggers of an object need attention: now, if marks are out of date.
pub(super) fn due<K: Triggered>(
    control: &Control,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<Option<Timestamp>, Error> {
    let now = control.world.now();
    let steps = look(tx, held, now)?;
    let at_once = !(steps.moved.is_empty() && steps.removed.is_empty());
    Ok(if at_once { Some(now) } else { steps.next })
}

/// Starts what is due, and sets the alarm for what comes next.
pub(super) async fn fire<K: Triggered>(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let mut refused = BTreeSet::new();
    loop {
        let (of, row, without) = (control.clone(), id.clone(), refused.clone());
        match control.store.write(move |tx| fire_in::<K>(&of, tx, &row, &without)).await {
            Ok(next) => {
                control.workloads.alarm.set(id.clone(), K::NAME, next);
                return Ok(());
            }
            // Everything that was begun is undone, and the others are fired without this one.
            Err(Stopped::Refused { trigger, error }) => {
                tracing::warn!(%error, %id, trigger, "a cron trigger could not start anything");
                refused.insert(trigger);
            }
            Err(Stopped::Failed(error)) => return Err(error),
        }
    }
}

/// Why a transaction that fires triggers is undone.
enum Stopped {
    Failed(Error),
    /// What a trigger is due to start is refused.
    Refused {
        trigger: String,
        error: Error,
    },
}

impl<E: Into<Error>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Starts what is due, without the triggers that were `refused`. Their due times are not tried
/// later, because they have passed.
fn fire_in<K: Triggered>(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    refused: &BTreeSet<String>,
) -> Result<Option<Timestamp>, Stopped> {
    let Some(held) = rows::lock::<K>(tx, id)? else { return Ok(None) };
    let Some((context, _)) = rows::context(control, tx, &held.row.workspace)? else {
        return Ok(None);
    };
    let steps = look(tx, &held, control.world.now())?;
    for mark in &steps.moved {
        marks::put(tx, id, mark)?;
    }
    for trigger in &steps.removed {
        marks::remove(tx, id, trigger)?;
    }
    for due in steps.due.iter().filter(|due| !refused.contains(&due.trigger)) {
        begin(&context, tx, &held, due)?;
    }
    Ok(steps.next)
}

fn look<K: Triggered>(tx: &mut Tx<'_>, held: &Held<K>, now: Timestamp) -> Result<Steps, Error> {
    let triggers = held.wish.triggers().iter().filter(|_| held.wish.enabled());
    let timed: Vec<Timed> = triggers.filter_map(Timed::of).collect();
    Ok(steps(&timed, &marks::list(tx, &held.row.id)?, held.row.updated_at, now))
}

/// Starts the execution of one due time.
fn begin<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    due: &Due,
) -> Result<(), Stopped> {
    let mut triggers = held.wish.triggers().iter();
    let trigger = triggers.find(|trigger| trigger.id.as_deref() == Some(due.trigger.as_str()));
    let name = due.execution_name(context.world());
    K::start_due(context, tx, held, trigger, name).map_err(|error| match error {
        Error::Store(error) => Stopped::Failed(Error::Store(error)),
        error => Stopped::Refused { trigger: due.trigger.clone(), error },
    })
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
