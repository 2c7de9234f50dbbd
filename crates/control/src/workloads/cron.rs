//! Fires the cron triggers of jobs and deployments. Each server watches the clock, and the first one
//! starts the execution.
//!
//! One transaction locks the row, decides what is due, moves the triggers' marks and starts the
//! executions. So each due time starts exactly one execution, whatever is killed when. A trigger
//! that is refused undoes only what it began itself.

use super::rows;
use crate::billing;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::executions::triggered::Triggered;
use jobs::Caller;
use jobs::cron::{Due, Steps, Timed, steps};
use std::sync::Arc;
use store::Tx;
use store::cron as marks;
use types::Timestamp;
use types::ids::ResourceId;
use types::parts::{Lifecycle, Status};

/// The type of events about triggers that were refused.
const EVENT: &str = "cron";
/// Most triggers whose last refusals are kept among the events of an object, so that they leave room
/// for the others.
const EVENTS_MAX: usize = 10;

/// The cron triggers of one version of an object. Lines are costly to parse, so that is done before
/// the transaction that writes.
struct Parsed {
    version: i64,
    timed: Vec<Timed>,
}

impl Parsed {
    fn of<K: Triggered>(held: &Held<K>) -> Self {
        let triggers = held.wish.triggers().iter().filter(|_| held.wish.enabled());
        Self { version: held.row.version, timed: triggers.filter_map(Timed::of).collect() }
    }

    fn look<K: Triggered>(
        &self,
        tx: &mut Tx<'_>,
        held: &Held<K>,
        now: Timestamp,
    ) -> Result<Steps, Error> {
        Ok(steps(&self.timed, &marks::list(tx, &held.row.id)?, held.row.updated_at, now))
    }
}

/// Returns when the cron triggers of an object need attention: now, if marks are out of date.
pub(super) fn due<K: Triggered>(
    control: &Control,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<Option<Timestamp>, Error> {
    let now = control.world.now();
    let steps = Parsed::of(held).look(tx, held, now)?;
    let at_once = !(steps.moved.is_empty() && steps.removed.is_empty());
    Ok(if at_once { Some(now) } else { steps.next })
}

/// Starts what is due, and sets the alarm for what comes next.
pub(super) async fn fire<K: Triggered>(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let row = id.clone();
    let read = move |tx: &mut Tx<'_>| {
        Ok::<_, Error>(rows::find::<K>(tx, &row)?.map(|held| Parsed::of(&held)))
    };
    let Some(parsed) = control.store.read(read).await? else { return Ok(()) };
    let (of, row, parsed) = (control.clone(), id.clone(), Arc::new(parsed));
    let fired = control.store.write(move |tx| fire_in::<K>(&of, tx, &row, &parsed)).await?;
    if let Some(first) = fired.refused.first() {
        let (refused, trigger, reason) = (fired.refused.len(), &first.due.trigger, &first.reason);
        tracing::warn!(%id, refused, trigger, reason, "cron triggers could not start anything");
    }
    control.workloads.alarm.set(id.clone(), K::NAME, fired.next);
    Ok(())
}

/// What a transaction did.
#[derive(Default)]
struct Fired {
    refused: Vec<Refused>,
    /// When to look again.
    next: Option<Timestamp>,
}

/// A due time that started nothing. It is not tried later, because it has passed.
struct Refused {
    due: Due,
    reason: String,
}

fn fire_in<K: Triggered>(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    parsed: &Parsed,
) -> Result<Fired, Error> {
    let Some((context, held)) = rows::lock_in::<K>(control, tx, id)? else {
        return Ok(Fired::default());
    };
    let now = control.world.now();
    let steps = match parsed.version == held.row.version {
        true => parsed.look(tx, &held, now)?,
        false => Parsed::of(&held).look(tx, &held, now)?,
    };
    for mark in &steps.moved {
        marks::put(tx, id, mark)?;
    }
    for trigger in &steps.removed {
        marks::remove(tx, id, trigger)?;
    }
    let refused = begin_all(&context, tx, &held, steps.due)?;
    note(tx, held, &refused, now)?;
    Ok(Fired { refused, next: steps.next })
}

/// Starts the executions of all due times, and returns those that were refused.
fn begin_all<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    all: Vec<Due>,
) -> Result<Vec<Refused>, Error> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    // What the workspace as a whole may not do is asked once, not for each of many triggers.
    if let Some(reason) = refusal(may_start(context, tx))? {
        let refused = |due| Refused { due, reason: reason.clone() };
        return Ok(all.into_iter().map(refused).collect());
    }
    let mut refused = Vec::new();
    for due in all {
        if let Some(reason) = refusal(tx.attempt(|tx| begin(context, tx, held, &due))?)? {
            refused.push(Refused { due, reason });
        }
    }
    Ok(refused)
}

/// Checks whether the workspace may start anything at all.
fn may_start(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    billing::allow(context, tx)?;
    Ok(context.control.queue.require_open(tx, &context.member.workspace, Caller::Member)?)
}

/// Returns why something was refused, if it was. Errors of the database are none of the trigger's.
fn refusal(result: Result<(), Error>) -> Result<Option<String>, Error> {
    match result {
        Ok(()) => Ok(None),
        Err(Error::Store(error)) => Err(Error::Store(error)),
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Starts the execution of one due time.
fn begin<K: Triggered>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    due: &Due,
) -> Result<(), Error> {
    let mut triggers = held.wish.triggers().iter();
    let trigger = triggers.find(|trigger| trigger.id.as_deref() == Some(due.trigger.as_str()));
    let name = due.execution_name(context.world());
    K::start_due(context, tx, held, trigger, name)
}

/// Tells the owner of triggers that they were refused, in the events of the object.
fn note<K: Triggered>(
    tx: &mut Tx<'_>,
    held: Held<K>,
    refused: &[Refused],
    now: Timestamp,
) -> Result<(), Error> {
    let mut state = held.state.clone();
    if refused.is_empty() || !K::lifecycle(&mut state).is_some_and(|it| record(it, refused, now)) {
        return Ok(());
    }
    rows::put_state(tx, held, state).map(drop)
}

/// Records refusals in place of earlier ones of the same triggers. Returns whether it did: the last
/// event of an object that is not deployed yet, or failed, tells what to do about that.
fn record(lifecycle: &mut Lifecycle, refused: &[Refused], now: Timestamp) -> bool {
    let last = lifecycle.events.last().map(|last| last.status);
    let Some(status) = last.filter(|status| *status != Status::Failed) else { return false };
    let left_out = refused.len().saturating_sub(EVENTS_MAX);
    for Refused { due, reason } in &refused[left_out..] {
        let beginning = format!("the trigger `{}`, due", due.trigger);
        let is_old = |message: &String| message.starts_with(&beginning);
        lifecycle.events.retain(|one| one.kind != EVENT || !one.message.iter().any(is_old));
        let message = format!("{beginning} at {}, could not start anything: {reason}", due.at);
        lifecycle.record(EVENT, status, message, now);
    }
    let all = lifecycle.events.iter().filter(|one| one.kind == EVENT).count();
    let mut excess = all.saturating_sub(EVENTS_MAX);
    lifecycle.events.retain(|one| {
        let is_kept = one.kind != EVENT || excess == 0;
        excess -= usize::from(!is_kept);
        is_kept
    });
    true
}

#[cfg(test)]
#[path = "cron_tests.rs"]
mod tests;
