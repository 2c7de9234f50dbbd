//! What comes of the launches of a sandbox, as its row says it.

use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::machine::{LaunchFault, Machine};
use crate::workloads::workload::in_containers;
use crate::workloads::{launch, preview, rows};
use std::sync::Arc;
use store::Tx;
use types::Timestamp;
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::Sandbox;
use types::kinds::sandbox::{Activity, Placement, SandboxInfrastructureError, State};
use types::parts::{Generation, Status};

/// Event types.
pub(super) const DEPLOYMENT: &str = "deployment";
const ENTRYPOINT: &str = "entrypoint";

/// Claims a sandbox for this machine, unless another was faster or the wish has changed. A sandbox
/// whose instance was lost gets a new launch number, so that facts of the old instance cannot be
/// mistaken for the new one's. The number is above `used` too, the highest on the machine, because
/// a row that was restored from a backup may know fewer launches than the machine.
pub(super) async fn claim(
    control: &Control,
    machine: &str,
    id: &ResourceId,
    (number, used): (u32, u32),
    lost: Option<&'static str>,
) -> Result<Option<Held<Sandbox>>, Error> {
    let (machine, of) = (machine.to_owned(), id.clone());
    change(control, id, number, move |_, state, now| {
        let elsewhere = state
            .placed
            .as_ref()
            .is_some_and(|it| it.machine != machine && it.launch == state.launch);
        // One that has failed elsewhere meanwhile has no machine.
        if elsewhere || state.lifecycle.status() == Some(Status::Failed) {
            return false;
        }
        if lost.is_some() || used > state.launch {
            state.launch = used.max(state.launch) + 1;
        }
        if let Some(why) = lost {
            state.activity = None;
            state.lifecycle.record(DEPLOYMENT, Status::Deploying, why, now);
        }
        state.placed = Some(placement(&machine, &of, state));
        true
    })
    .await
}

pub(super) async fn say_deployed(
    control: &Control,
    machine: &str,
    id: &ResourceId,
    number: u32,
) -> Result<(), Error> {
    let (machine, of) = (machine.to_owned(), id.clone());
    let done = change(control, id, number, move |wish, state, now| {
        deployed(state, &machine, &of, generation(wish), now);
        true
    });
    done.await.map(drop)
}

/// Notes in the events of a sandbox that the program of its image failed at its start. The sandbox
/// keeps serving. If this server is stopped in between, nothing is noted.
pub(crate) fn watch_start(
    control: &Control,
    machine: Arc<dyn Machine>,
    (id, number): (ResourceId, u32),
    instance: InstanceName,
) {
    let control = control.clone();
    tokio::spawn(async move {
        let Some(why) = machine.start_failure(&instance).await else { return };
        let message = format!("the program that the image starts has failed: {why}");
        let noted =
            change(&control, &id, number, move |_, state, now| match state.lifecycle.status() {
                Some(status @ Status::Deployed) => {
                    state.lifecycle.record(ENTRYPOINT, status, &*message, now);
                    true
                }
                _ => false,
            });
        if let Err(error) = noted.await {
            tracing::warn!(%error, "a failed start of an image's program could not be noted");
        }
    });
}

pub(super) async fn say_failed(
    control: &Control,
    id: &ResourceId,
    number: u32,
    instance: InstanceName,
    fault: &LaunchFault,
) -> Result<(), Error> {
    let code = match fault {
        LaunchFault::Image(_) | LaunchFault::Pull(_) => "IMAGE_UNAVAILABLE",
        LaunchFault::Full(_) => "NO_CAPACITY",
        LaunchFault::OverShare(_) => "QUOTA_EXCEEDED",
        LaunchFault::Busy(_) | LaunchFault::Broken(_) => "LAUNCH_FAILED",
    };
    let message = fault.to_string();
    tracing::warn!(%instance, message, "a sandbox could not be started");
    let done = change(control, id, number, move |_, state, now| {
        // Another attempt has noted it already: the sandbox is archived as before.
        if state.lifecycle.status() == Some(Status::Archived) {
            return false;
        }
        failed(state, code, &message, &instance, now);
        true
    });
    done.await.map(drop)
}

/// Changes the state of a sandbox, unless its row asks for another launch by now. Its previews
/// follow it to another machine.
pub(super) async fn change(
    control: &Control,
    id: &ResourceId,
    number: u32,
    mut act: impl FnMut(&Sandbox, &mut State, Timestamp) -> bool + Send + 'static,
) -> Result<Option<Held<Sandbox>>, Error> {
    let (id, world) = (id.clone(), control.world.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Sandbox>(tx, &id)? else { return Ok(None) };
        let mut state = held.state.clone();
        if state.launch != number || !act(&held.wish, &mut state, world.now()) {
            return Ok(None);
        }
        let moves = machine_of(&state) != machine_of(&held.state);
        let held = rows::put_state(tx, held, state)?;
        if moves {
            preview::follow(tx, &held, machine_of(&held.state))?;
        }
        Ok(Some(held))
    };
    control.store.write(work).await
}

fn machine_of(state: &State) -> Option<&str> {
    state.placed.as_ref().map(|placed| placed.machine.as_str())
}

/// Returns the generation that a wish names, if any.
pub(crate) fn generation(wish: &Sandbox) -> Option<Generation> {
    wish.spec.runtime.as_ref()?.generation
}

/// Sets the state of a sandbox whose instance runs.
pub(crate) fn deployed(
    state: &mut State,
    machine: &str,
    id: &ResourceId,
    generation: Option<Generation>,
    now: Timestamp,
) {
    let mut message = in_containers("runs in a container", generation);
    if state.snapshot.is_some() {
        message.push_str("; it began with the files of a snapshot, without memory and processes");
    }
    state.archive = None;
    state.lifecycle.record(DEPLOYMENT, Status::Deployed, message, now);
    state.placed = Some(placement(machine, id, state));
    state.activity = Some(Activity::Running);
    state.last_used_at = Some(now);
}

/// Returns the placement of a sandbox whose wished launch this machine takes.
fn placement(machine: &str, id: &ResourceId, state: &State) -> Placement {
    let instance = Some(launch::instance(id, state));
    Placement { machine: machine.to_owned(), launch: state.launch, instance }
}

/// Sets the state of a sandbox whose instance could not be started.
pub(crate) fn failed(
    state: &mut State,
    code: &str,
    message: &str,
    instance: &InstanceName,
    now: Timestamp,
) {
    // A sandbox that cannot be brought back stays archived.
    let status = match state.lifecycle.status() {
        Some(Status::Unarchiving) => Status::Archived,
        _ => Status::Failed,
    };
    state.lifecycle.record(DEPLOYMENT, status, message, now);
    state.activity = None;
    if state.last_used_at.is_none() {
        // It has never run here, so another machine may try when it is changed.
        state.placed = None;
    }
    state.errors = vec![SandboxInfrastructureError {
        code: Some(code.to_owned()),
        fatal: Some(true),
        instance: Some(instance.to_string()),
        message: Some(message.to_owned()),
        time: Some(now),
    }];
}
