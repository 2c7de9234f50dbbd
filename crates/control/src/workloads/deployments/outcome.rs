//! How outcomes change the row: which revision serves, what failed and why.

use super::deployable::Deployable;
use super::plan::Change;
use super::route::{self, wished_canary};
use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::workload_identity;
use crate::workloads::rows;
use crate::workloads::workload::in_containers;
use std::time::Duration;
use store::Tx;
use types::Timestamp;
use types::ids::ResourceId;
use types::parts::{Deployment, Generation, Of, Served, Status};

const DEPLOYMENT: &str = "deployment";
const REPLICA: &str = "replica";
/// How many replica numbers a row gives out at once, so that most launches need not write it.
const NUMBERS: u32 = 64;

/// Changes the state of a deployment if `act` returns a new one. `act` may be called again.
async fn change<K: Deployable>(
    control: &Control,
    id: &ResourceId,
    mut act: impl FnMut(&Context, &mut Tx<'_>, &Held<K>) -> Result<Option<Deployment>, Error>
    + Send
    + 'static,
) -> Result<Option<Held<K>>, Error> {
    let _telling = control.workloads.telling.one(id).await;
    let (of, id) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some((context, held)) = rows::lock_in::<K>(&of, tx, &id)? else { return Ok(None) };
        let Some(state) = act(&context, tx, &held)? else { return Ok(None) };
        let held = rows::put_state(tx, held, state)?;
        // Published before anybody can read the row: whoever sees that a revision serves gets
        // answers from it. If the row is not written after all, the next look publishes the route
        // as it is.
        if let Some(route) = route::of(&of, tx, &held)? {
            of.publish(route);
        }
        Ok(Some(held))
    };
    control.store.write(work).await
}

/// Makes a planned change of the row. Returns `false` if the wish has changed meanwhile.
pub(super) async fn apply<K: Deployable>(
    control: &Control,
    id: &ResourceId,
    planned: &Change,
) -> Result<bool, Error> {
    let planned = planned.clone();
    let done = change::<K>(control, id, move |context, tx, held| match &planned {
        Change::Switch(to) => switch(context, tx, held, to),
        Change::Prove(canary) => prove(context, tx, held, canary),
        Change::SayOff => {
            let off = say_off(held, context.world().now());
            if off.is_some() {
                give_back_volumes(context, tx, held, None)?;
            }
            Ok(off)
        }
        Change::SayBound => say_bound(held, context.world().now()),
    });
    Ok(done.await?.is_some())
}

fn switch<K: Deployable>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    to: &str,
) -> Result<Option<Deployment>, Error> {
    let wished = held.wish.revisions().active.as_deref() == Some(to);
    if !wished || held.row.status != Some(Status::Deploying) {
        return Ok(None);
    }
    let Some((port, generation)) = of_revision(context, tx, held, to)? else { return Ok(None) };
    give_back_volumes(context, tx, held, Some(to))?;
    let mut state = held.state.clone();
    state.serving = Some(Served { revision: to.to_owned(), port });
    let mut message = in_containers("serves in containers", generation);
    message.push_str(&short_of(&context.control, &held.wish));
    let now = context.world().now();
    state.lifecycle.record_of(Of::Revision(to), DEPLOYMENT, Status::Deployed, message, now);
    Ok(Some(state))
}

/// Gives back the volumes of what has served until now, unless the wish or what serves next has
/// them too.
fn give_back_volumes<K: Deployable>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    next: Option<&str>,
) -> Result<(), Error> {
    let Some(revision) = held.state.serves().filter(|_| K::MOUNTS_VOLUMES) else { return Ok(()) };
    let mut wish_of = |revision| engine::wish_of::<K>(context, tx, &held.row.id, revision);
    let Some(before) = wish_of(revision)? else { return Ok(()) };
    let next = next.map(wish_of).transpose()?.flatten();
    let Some(holder) = before.holder() else { return Ok(()) };
    let others = [held.wish.holder(), next.as_ref().and_then(Deployable::holder)];
    let others: Vec<_> = others.iter().flatten().collect();
    holder.leave_but(context, tx, &others)
}

/// Says that fewer replicas run than a wish asks for.
fn short_of<K: Deployable>(control: &Control, wish: &K) -> String {
    let (Some(min), there) = (wish.scale().0, route::scale(control, wish).max) else {
        return String::new();
    };
    if min <= i64::from(there) {
        return String::new();
    }
    let most = control.settings.deployments.replicas_max;
    format!(
        "; {there} replicas run at most, not the {min} of `minScale`: \
         set `maxScale`, of which this server allows {most}"
    )
}

/// Returns the port and the generation of a kept revision.
fn of_revision<K: Deployable>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    revision: &str,
) -> Result<Option<(u16, Option<Generation>)>, Error> {
    let Some(wish) = engine::wish_of::<K>(context, tx, &held.row.id, revision)? else {
        return Ok(None);
    };
    let program = wish.program(&held.row.id)?;
    Ok(program.map(|program| (program.port, program.generation)))
}

fn prove<K: Deployable>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
    canary: &str,
) -> Result<Option<Deployment>, Error> {
    let wished = wished_canary(&held.wish).filter(|(wished, _)| wished == canary);
    let (Some((_, percent)), Some(serving)) = (wished, &held.state.serving) else {
        return Ok(None);
    };
    let Some((port, _)) = of_revision(context, tx, held, canary)? else { return Ok(None) };
    let (mut state, now) = (held.state.clone(), context.world().now());
    let status = status(held);
    if port == serving.port {
        state.canary = Some(canary.to_owned());
        let message = format!("the canary gets {percent} % of the requests");
        state.lifecycle.record_of(Of::Canary(canary), DEPLOYMENT, status, message, now);
    } else {
        state.failed.push(canary.to_owned());
        let message = format!(
            "the canary gets no requests: it listens on port {port}, and what serves on {}",
            serving.port
        );
        state.lifecycle.record_of(Of::Canary(canary), DEPLOYMENT, status, message, now);
    }
    Ok(Some(state))
}

fn status<K: Deployable>(held: &Held<K>) -> Status {
    held.row.status.unwrap_or(Status::Deployed)
}

fn say_off<K: Deployable>(held: &Held<K>, now: Timestamp) -> Option<Deployment> {
    let off = held.row.status == Some(Status::Deactivating);
    off.then(|| {
        let mut state = Deployment { serving: None, canary: None, ..held.state.clone() };
        let message = "its replicas have ended";
        state.lifecycle.record(DEPLOYMENT, Status::Deactivated, message, now);
        state
    })
}

/// No revision serves meanwhile. The next one to do so is probed first, like a new one.
fn say_bound<K: Deployable>(held: &Held<K>, now: Timestamp) -> Result<Option<Deployment>, Error> {
    let bound = held.wish.bound(&held.row.id)?;
    let Some(bound) = bound.filter(|_| held.row.status == Some(Status::Deploying)) else {
        return Ok(None);
    };
    let mut state = Deployment { serving: None, canary: None, ..held.state.clone() };
    let message = format!("port {} of the sandbox `{}` answers", bound.port, bound.sandbox);
    state.lifecycle.record(DEPLOYMENT, Status::Deployed, message, now);
    Ok(Some(state))
}

/// Claims a deployment for this machine, unless another one was faster, and gives it an identity
/// and numbers for its replicas.
pub(super) async fn claim<K: Deployable>(
    control: &Control,
    machine: &str,
    id: &ResourceId,
) -> Result<Option<Held<K>>, Error> {
    let machine = machine.to_owned();
    let claimed = change::<K>(control, id, move |context, tx, held| {
        if held.state.machine.as_ref().is_some_and(|other| *other != machine) {
            return Ok(None);
        }
        let mut state = held.state.clone();
        state.machine = Some(machine.clone());
        state.numbers = state.numbers.saturating_add(NUMBERS);
        if state.identity.is_none() {
            let account = workload_identity::find_or_make(context, tx, &held.row)?;
            state.identity = Some(account);
        }
        Ok(Some(state))
    })
    .await?;
    if let Some(held) = &claimed {
        let numbers = held.state.numbers;
        let fresh = numbers - NUMBERS + 1..numbers.saturating_add(1);
        control.workloads.deployments.give_numbers(id, fresh);
    }
    Ok(claimed)
}

/// Notes that a replica has ended by itself, or could not be started. A revision that was never
/// ready has failed; for others a new replica is started after a pause.
pub(super) async fn ended<K: Deployable>(
    control: &Control,
    id: &ResourceId,
    revision: &str,
    why: &str,
    lasting: bool,
) {
    let settings = &control.settings.deployments;
    let pauses = (settings.restart_pause, settings.restart_pause_max);
    let (ends, pause) = control.workloads.deployments.pause(id, revision, lasting, pauses);
    tracing::debug!(%id, revision, why, "a replica has ended");
    loop {
        let (revision, why) = (revision.to_owned(), why.to_owned());
        let noted = change::<K>(control, id, move |context, _, held| {
            let again = (ends, pause);
            Ok(note_end(held, &revision, &why, again, context.world().now()))
        });
        match noted.await {
            Ok(_) => return,
            Err(error) if rows::may_pass(&error) => {
                tracing::error!(%error, %id, "the end of a replica could not be noted; it is tried again");
                tokio::time::sleep(rows::RETRY_AFTER).await;
            }
            Err(error) => {
                tracing::error!(%error, %id, "the end of a replica is not noted");
                return;
            }
        }
    }
}

fn note_end<K: Deployable>(
    held: &Held<K>,
    revision: &str,
    why: &str,
    (ends, pause): (u32, Duration),
    now: Timestamp,
) -> Option<Deployment> {
    let (mut state, status) = (held.state.clone(), status(held));
    let is_canary = wished_canary(&held.wish).is_some_and(|(canary, _)| canary == revision);
    let serves = state.serves() == Some(revision);
    let proven = serves || (is_canary && state.canary.as_deref() == Some(revision));
    let next = held.wish.revisions().active.as_deref() == Some(revision);
    let events = &mut state.lifecycle;
    if proven {
        let times = if ends == 1 { String::new() } else { format!(" ({ends} times in a row)") };
        let message = format!(
            "a replica has ended{times}: {why}; another may start in {} s",
            pause.as_secs()
        );
        let about = if serves { Of::Revision(revision) } else { Of::Canary(revision) };
        // One event stands for all ends in a row, so that they do not push out other events.
        let same = |last: &types::parts::CoreEvent| last.kind == REPLICA && ends > 1;
        if events.events.last().is_some_and(same) {
            events.events.pop();
        }
        events.record_of(about, REPLICA, status, message, now);
        return Some(state);
    }
    if state.failed.iter().any(|failed| failed == revision) {
        return None;
    }
    if next && status == Status::Deploying {
        events.record_of(Of::Revision(revision), DEPLOYMENT, Status::Failed, why, now);
    } else if is_canary {
        let message = format!("the canary gets no requests: {why}");
        events.record_of(Of::Canary(revision), DEPLOYMENT, status, message, now);
    } else {
        return None;
    }
    state.failed.push(revision.to_owned());
    Some(state)
}
