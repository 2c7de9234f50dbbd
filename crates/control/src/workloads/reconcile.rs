//! Reconciliation of one sandbox: makes what runs match what its row asks for.

mod case;
pub(super) mod outcome;
mod rules;

use super::instances::retire;
use super::{archive, launch, routes, soon, workload};
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::machine::{Launch, LaunchFault, Machine, Seen};
use crate::snapshot_store::SnapshotStore;
use crate::{drives, tunnels, usage};
use case::Case;
use outcome::{DEPLOYMENT, change, claim, say_deployed, say_failed, watch_start};
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use types::KindName;
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::Sandbox;
use types::kinds::sandbox::State;
use types::parts::Status;

/// Pause before it is tried again to put a sandbox to sleep. Its requests end within about half of
/// that; a caller that leaves an answer unread may take minutes.
const REST_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Told in the events of a sandbox whose change lets it begin so.
const EMPTY_DISK: &str = "it begins with an empty disk, without the files that it had written";

/// What a row asks of this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// No instance.
    Nothing,
    /// The instance of this launch, asleep, until the sandbox is enabled again.
    Rest(u32),
    Instance(u32),
    /// The instance of this launch, until its files are archived.
    Archive(u32),
    /// Nothing: another machine runs it.
    Elsewhere,
}

pub(super) fn wanted(state: &State, status: Option<Status>, machine: &str) -> Wanted {
    let elsewhere = state
        .placed
        .as_ref()
        .is_some_and(|placed| placed.machine != machine && placed.launch == state.launch);
    match status {
        _ if elsewhere => Wanted::Elsewhere,
        Some(Status::Deactivated | Status::Deactivating) => Wanted::Rest(state.launch),
        Some(Status::Deploying | Status::Deployed | Status::Unarchiving) => {
            Wanted::Instance(state.launch)
        }
        Some(Status::Archiving) => Wanted::Archive(state.launch),
        _ => Wanted::Nothing,
    }
}

/// Does what a sandbox's row asks of this machine, if anything. Repeating it is harmless.
pub(super) async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let Some(machine) = control.machine().cloned() else { return Ok(()) };
    let _lock = control.workloads.lock(id).await;
    let Some(case) = case::read(control, machine.name(), id).await? else {
        retire_but(&*machine, id, None).await;
        control.workloads.told.forget(id);
        forget_root(&*machine, id).await?;
        // An attempt to write its row may have published one.
        return routes::publish(control, id).await;
    };
    act(control, &machine, id, case).await?;
    // Whoever published the route meanwhile may have seen a half-made instance.
    routes::publish(control, id).await
}

async fn act(
    control: &Control,
    machine: &Arc<dyn Machine>,
    id: &ResourceId,
    mut case: Case,
) -> Result<(), Error> {
    let wanted = wanted(&case.held.state, case.held.row.status, machine.name());
    if !matches!(wanted, Wanted::Elsewhere | Wanted::Nothing) {
        // Told before the instance is woken, or can be reached.
        rules::tell(control, &**machine, id, &mut case).await?;
    }
    match wanted {
        Wanted::Elsewhere => Ok(()),
        Wanted::Nothing => {
            retire_but(&**machine, id, None).await;
            match case.held.row.status {
                Some(Status::Terminated | Status::Archived) => forget_root(&**machine, id).await,
                _ => Ok(()),
            }
        }
        Wanted::Archive(number) => {
            retire_but(&**machine, id, Some(number)).await;
            if !archive::has_begun(control, id)
                && sleeps(control, &**machine, id, &case.held.state).await?
            {
                archive::begin(control, id);
            }
            Ok(())
        }
        Wanted::Rest(number) => {
            retire_but(&**machine, id, Some(number)).await;
            sleeps(control, &**machine, id, &case.held.state).await.map(drop)
        }
        Wanted::Instance(number) => match away(&**machine, id, &case.held.state) {
            Some((snapshots, snapshot)) => {
                fetch(control, &case.held, snapshots, snapshot);
                Ok(())
            }
            None => ensure(control, machine, case, number).await,
        },
    }
}

/// Puts a sandbox to sleep, and returns whether it sleeps. As long as it still has requests, this is
/// tried again.
async fn sleeps(
    control: &Control,
    machine: &dyn Machine,
    id: &ResourceId,
    state: &State,
) -> Result<bool, Error> {
    // From now on no request may wake it, and those that it has end.
    routes::publish(control, id).await?;
    let instance = launch::instance(id, state);
    if !machine.runs(&instance) {
        return Ok(true);
    }
    let rested = machine.rest(&instance).await;
    if let Err(fault) = &rested {
        tracing::debug!(%fault, %instance, "a sandbox cannot be put to sleep yet");
        look_again(control, id);
    }
    Ok(rested.is_ok())
}

/// Reconciles a sandbox again after a pause. Its row decides then, because it may be wanted again.
fn look_again(control: &Control, id: &ResourceId) {
    let (control, id) = (control.clone(), id.clone());
    let tasks = control.workloads.tasks.clone();
    tasks.spawn(async move {
        {
            let Some(_pausing) = control.workloads.resting.begin_alone(&id) else { return };
            tokio::time::sleep(REST_AGAIN_AFTER).await;
        }
        soon::reconcile(&control, KindName::Sandbox, id);
    });
}

/// Returns the snapshot that the next instance of a sandbox begins with, if its files must be
/// fetched.
fn away(
    machine: &dyn Machine,
    id: &ResourceId,
    state: &State,
) -> Option<(Arc<dyn SnapshotStore>, ResourceId)> {
    let (snapshots, snapshot) = (machine.snapshots()?, state.snapshot.clone()?);
    let is_needed = !machine.runs(&launch::instance(id, state)) && !snapshots.is_here(&snapshot);
    is_needed.then_some((snapshots, snapshot))
}

/// Fetches files in the background. That may take long, and meanwhile the sandbox may be deleted,
/// and others must be looked after.
fn fetch(
    control: &Control,
    held: &Held<Sandbox>,
    snapshots: Arc<dyn SnapshotStore>,
    snapshot: ResourceId,
) {
    let id = held.row.id.clone();
    let (control, workspace) = (control.clone(), held.row.workspace.to_string());
    let (number, instance) = (held.state.launch, launch::instance(&id, &held.state));
    let tasks = control.workloads.tasks.clone();
    tasks.spawn(async move {
        let fetched = {
            let Some(_fetching) = control.workloads.fetching.begin_alone(&id) else { return };
            snapshots.fetch(&workspace, &snapshot).await
        };
        if let Err(fault) = fetched {
            match say_failed(&control, &id, number, instance, &fault.into()).await {
                Ok(()) => return,
                Err(error) => tracing::error!(%error, %id, "its files are fetched again"),
            }
        }
        soon::reconcile(&control, KindName::Sandbox, id);
    });
}

/// Makes sure that the instance of this launch runs, and that the row has the outcome.
async fn ensure(
    control: &Control,
    shared: &Arc<dyn Machine>,
    case: Case,
    number: u32,
) -> Result<(), Error> {
    let machine = &**shared;
    let id = case.held.row.id.clone();
    let used = retire_but(machine, &id, Some(number)).await;
    let deployed = case.held.row.status == Some(Status::Deployed);
    let running = launch::instance(&id, &case.held.state);
    if machine.runs(&running) {
        return if deployed {
            drives::complete(control, &id, &running, case.drives).await;
            Ok(())
        } else {
            say_deployed(control, machine.name(), &id, number).await
        };
    }
    if case.elsewhere {
        // The machine that keeps it runs the sandbox.
        return Ok(());
    }
    let lost = deployed.then(|| lost(machine, &case.held));
    let Some(held) = claim(control, machine.name(), &id, (number, used), lost).await? else {
        return Ok(());
    };
    let (number, instance) = (held.state.launch, launch::instance(&id, &held.state));
    own(control, machine, &case, &instance).await?;
    let (volumes, rules) = match (case.volumes, case.rules) {
        (Ok(volumes), Ok(rules)) => (volumes, rules),
        (Err(why), _) | (_, Err(why)) => {
            return say_failed(control, &id, number, instance, &LaunchFault::Broken(why)).await;
        }
    };
    if held.state.fresh_disk && !renew_disk(control, machine, &id, number).await? {
        return Ok(());
    }
    // The number of the wish that the rules were read from, which may have changed since.
    let rules_number = case.held.state.rules;
    let held = Held { state: held.state, ..case.held };
    let mounts = (volumes, case.drives);
    let launch = launch::of_row(&case.context, &case.workspace, &held, mounts, rules)?;
    let launch = Launch { again: lost.is_some(), ..launch };
    match workload::start(&control.store, machine, launch).await {
        Ok(()) => {
            if held.state.rules_kept != rules_number {
                rules::kept(control, &id, number, rules_number).await?;
            }
            control.workloads.told.note(&id, (number, rules_number));
            say_deployed(control, machine.name(), &id, number).await?;
            restore_tunnel(control, &id);
            watch_start(control, Arc::clone(shared), (id, number), instance);
            Ok(())
        }
        // The sandbox that had its volume is still ending. This is tried again.
        Err(LaunchFault::Busy(why)) => Err(Error::Launch(why)),
        Err(fault) => say_failed(control, &id, number, instance, &fault).await,
    }
}

/// Removes the old disk of a sandbox that gets a new one. Returns false if this launch is over.
async fn renew_disk(
    control: &Control,
    machine: &dyn Machine,
    id: &ResourceId,
    number: u32,
) -> Result<bool, Error> {
    // The old disk is removed before the row says so: after a kill in between it is just removed
    // again.
    forget_root(machine, id).await?;
    let done = change(control, id, number, |_, state, now| {
        state.fresh_disk = false;
        // One that comes back from its archive has its files in a snapshot.
        if let Some(status @ Status::Deploying) = state.lifecycle.status() {
            state.lifecycle.record(DEPLOYMENT, status, EMPTY_DISK, now);
        }
        true
    });
    Ok(done.await?.is_some())
}

/// Restores the tunnel in a task of its own, because the caller holds the lock of the sandbox.
fn restore_tunnel(control: &Control, id: &ResourceId) {
    let (of, id) = (control.clone(), id.clone());
    control.workloads.tasks.spawn(async move { tunnels::restore(&of, &id).await });
}

/// Says what a sandbox loses with its instance. The machine may lack the disk too: a row that was
/// restored from a backup may be of a sandbox that was deleted since, with its disk.
fn lost(machine: &dyn Machine, held: &Held<Sandbox>) -> &'static str {
    let wants_disk =
        held.wish.spec.runtime.as_ref().is_some_and(|runtime| runtime.storage_mb.is_some());
    let disk = launch::root_of(&held.row.id);
    let has_disk = || machine.volumes().is_some_and(|volumes| volumes.size_mb(&disk).is_some());
    match wants_disk && has_disk() {
        true => "the machine lost it; it starts anew, with the files on its disk and its volumes",
        false => "the machine lost it, with all that was not on a volume; it starts anew",
    }
}

/// Registers the owner of an instance's usage, before there is any usage.
async fn own(
    control: &Control,
    machine: &dyn Machine,
    case: &Case,
    instance: &InstanceName,
) -> Result<(), Error> {
    let (context, machine) = (case.context.clone(), machine.name().to_owned());
    let (name, id) = (case.held.row.name.clone(), case.held.row.id.clone());
    let instance = instance.clone();
    let work = move |tx: &mut Tx<'_>| {
        usage::own_instance::<Sandbox>(&context, tx, &instance, (&name, &id), &machine)
    };
    control.store.write(work).await
}

/// Removes all instances of a sandbox except a running one of launch `number`. Returns the highest
/// launch that there was on the machine, or 0.
async fn retire_but(machine: &dyn Machine, id: &ResourceId, number: Option<u32>) -> u32 {
    let mut used = 0;
    for Seen { instance, runs } in machine.instances_of(id) {
        let launch = instance.launch_of(id);
        used = used.max(launch.unwrap_or_default());
        if launch != number || !runs {
            retire(machine, &instance).await;
        }
    }
    used
}

/// Removes the disk of a sandbox that is over, or that never came to be.
pub(super) async fn forget_root(machine: &dyn Machine, id: &ResourceId) -> Result<(), Error> {
    let Some(volumes) = machine.volumes() else { return Ok(()) };
    Ok(volumes.remove(&launch::root_of(id)).await?)
}
