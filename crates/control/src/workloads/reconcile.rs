//! Reconciliation of one sandbox: makes what runs match what its row asks for.

mod rules;

use super::instances::{Inventory, Present, retire};
use super::{archive, launch, routes, rows, soon, workload};
use crate::attachments::Holder;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::machine::{Launch, LaunchFault, Machine};
use crate::snapshot_store::SnapshotStore;
use crate::{drives, egress, engine, placement, tunnels, usage, volumes};
use std::sync::Arc;
use store::Tx;
use store::identity::workspaces::Workspace;
use types::egress::EgressRules;
use types::ids::ResourceId;
use types::instance::{DriveMount, InstanceName, VolumeMount};
use types::kinds::Sandbox;
use types::kinds::sandbox::{Activity, Placement, SandboxInfrastructureError, State};
use types::parts::{Generation, Status};
use types::{KindName, Timestamp};

const DEPLOYMENT: &str = "deployment";
const ENTRYPOINT: &str = "entrypoint";

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
    let _lock = control.workloads.locks.take(id).await;
    let Some(case) = read(control, machine.name(), id).await? else {
        retire_but(&*machine, id, None).await;
        control.workloads.told.forget(id);
        return forget_root(&*machine, id).await;
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
            // From now on no request may wake it.
            routes::publish(control, id).await?;
            archive::begin(control, &**machine, id, &case.held.state).await;
            Ok(())
        }
        Wanted::Rest(number) => {
            retire_but(&**machine, id, Some(number)).await;
            let instance = launch::instance(id, &case.held.state);
            if machine.runs(&instance)
                && let Err(fault) = machine.rest(&instance).await
            {
                tracing::warn!(%fault, %instance, "a disabled sandbox could not be put to sleep");
            }
            Ok(())
        }
        Wanted::Instance(number) => match away(&**machine, id, &case.held.state) {
            Some((keeper, snapshot)) => {
                fetch(control, &case.held, keeper, snapshot);
                Ok(())
            }
            None => ensure(control, machine, case, number).await,
        },
    }
}

/// Returns the snapshot that the next instance of a sandbox begins with, if its files must be
/// fetched.
fn away(
    machine: &dyn Machine,
    id: &ResourceId,
    state: &State,
) -> Option<(Arc<dyn SnapshotStore>, ResourceId)> {
    let (keeper, snapshot) = (machine.snapshots()?, state.snapshot.clone()?);
    let is_needed = !machine.runs(&launch::instance(id, state)) && !keeper.is_here(&snapshot);
    is_needed.then_some((keeper, snapshot))
}

/// Fetches files in the background. That may take long, and meanwhile the sandbox may be deleted,
/// and others must be looked after.
fn fetch(
    control: &Control,
    held: &Held<Sandbox>,
    keeper: Arc<dyn SnapshotStore>,
    snapshot: ResourceId,
) {
    let id = held.row.id.clone();
    let (control, workspace) = (control.clone(), held.row.workspace.to_string());
    let (number, instance) = (held.state.launch, launch::instance(&id, &held.state));
    let tasks = control.workloads.tasks.clone();
    tasks.spawn(async move {
        let fetched = {
            let Some(_fetching) = control.workloads.fetching.begin_alone(&id) else { return };
            keeper.fetch(&workspace, &snapshot).await
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

struct Case {
    context: Context,
    workspace: Workspace,
    held: Held<Sandbox>,
    /// Or why it cannot have them.
    volumes: Result<Vec<VolumeMount>, String>,
    drives: Vec<DriveMount>,
    /// Or why its traffic cannot leave as its wish says.
    rules: Result<EgressRules, String>,
    /// Whether another machine keeps what it begins with or mounts.
    elsewhere: bool,
}

async fn read(control: &Control, machine: &str, id: &ResourceId) -> Result<Option<Case>, Error> {
    let (of, id, machine) = (control.clone(), id.clone(), machine.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::find::<Sandbox>(tx, &id)? else { return Ok(None) };
        let Some((context, workspace)) = rows::context(&of, tx, &held.row.workspace)? else {
            return Ok(None);
        };
        let (holder, begins) = (Holder::sandbox(&held.wish), held.state.snapshot.as_ref());
        let volumes = volumes::mounts(&context, tx, &holder, &machine)?;
        let drives = drives::mounts(&context, tx, &held, &machine)?;
        let required = placement::required(&context, tx, begins, Some(&holder))?;
        let rules = egress::of_sandbox(&context, tx, &engine::opened(&context, &held)?)?;
        let elsewhere = required.is_some_and(|required| required != machine);
        Ok::<_, Error>(Some(Case { context, workspace, held, volumes, drives, rules, elsewhere }))
    };
    control.store.read(work).await
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
    retire_but(machine, &id, Some(number)).await;
    let deployed = case.held.row.status == Some(Status::Deployed);
    if machine.runs(&launch::instance(&id, &case.held.state)) {
        return if deployed {
            Ok(())
        } else {
            say_deployed(control, machine.name(), &id, number).await
        };
    }
    if case.elsewhere {
        // The machine that keeps it runs the sandbox.
        return Ok(());
    }
    let lost = deployed.then(|| lost(&case.held.wish));
    let Some(held) = claim(control, machine.name(), &id, number, lost).await? else {
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
    // The number of the wish that the rules were read from, which may have changed since.
    let rules_number = case.held.state.rules;
    if held.state.fresh_disk {
        // The old disk is removed before the row says so: after a kill in between it is just
        // removed again.
        forget_root(machine, &id).await?;
        let done = change(control, &id, number, |_, state, _| {
            state.fresh_disk = false;
            true
        });
        if done.await?.is_none() {
            return Ok(());
        }
    }
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

/// Restores the tunnel in a task of its own, because the caller holds the lock of the sandbox.
fn restore_tunnel(control: &Control, id: &ResourceId) {
    let (of, id) = (control.clone(), id.clone());
    control.workloads.tasks.spawn(async move { tunnels::restore(&of, &id).await });
}

/// Says what a sandbox loses with its instance.
fn lost(wish: &Sandbox) -> &'static str {
    match wish.spec.runtime.as_ref().and_then(|runtime| runtime.storage_mb) {
        Some(_) => {
            "the machine lost it; it starts anew, with the files on its disk and its volumes"
        }
        None => "the machine lost it, with all that was not on a volume; it starts anew",
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

/// Claims a sandbox for this machine, unless another was faster or the wish has changed. A sandbox
/// whose instance was lost gets a new launch number, so that facts of the old instance cannot be
/// mistaken for the new one's.
async fn claim(
    control: &Control,
    machine: &str,
    id: &ResourceId,
    number: u32,
    lost: Option<&'static str>,
) -> Result<Option<Held<Sandbox>>, Error> {
    let (machine, of) = (machine.to_owned(), id.clone());
    change(control, id, number, move |_, state, now| {
        let elsewhere = state
            .placed
            .as_ref()
            .is_some_and(|it| it.machine != machine && it.launch == state.launch);
        if elsewhere {
            return false;
        }
        if let Some(why) = lost {
            state.launch += 1;
            state.activity = None;
            state.lifecycle.record(DEPLOYMENT, Status::Deploying, why, now);
        }
        state.placed = Some(placement(&machine, &of, state));
        true
    })
    .await
}

async fn say_deployed(
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
pub(super) fn watch_start(
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

async fn say_failed(
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

/// Changes the state of a sandbox, unless its row asks for another launch by now.
async fn change(
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
        rows::put_state(tx, held, state).map(Some)
    };
    control.store.write(work).await
}

/// Returns the generation that a wish names, if any.
pub(super) fn generation(wish: &Sandbox) -> Option<Generation> {
    wish.spec.runtime.as_ref()?.generation
}

/// Sets the state of a sandbox whose instance runs.
pub(super) fn deployed(
    state: &mut State,
    machine: &str,
    id: &ResourceId,
    generation: Option<Generation>,
    now: Timestamp,
) {
    let mut message = match generation {
        None | Some(Generation::Mk2) => "runs in a container",
        Some(Generation::Mk3) => {
            "runs in a container: this server has no microVMs, which mk3 asks for"
        }
    }
    .to_owned();
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
pub(super) fn failed(
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
    state.errors = vec![SandboxInfrastructureError {
        code: Some(code.to_owned()),
        fatal: Some(true),
        instance: Some(instance.to_string()),
        message: Some(message.to_owned()),
        time: Some(now),
    }];
}

/// Removes all instances of a sandbox except a running one of launch `number`.
async fn retire_but(machine: &dyn Machine, id: &ResourceId, number: Option<u32>) {
    for Present { instance, launch, runs } in Inventory::of(machine).of_sandbox(id) {
        if Some(*launch) != number || !runs {
            retire(machine, instance).await;
        }
    }
}

/// Removes the disk of a sandbox that is over.
async fn forget_root(machine: &dyn Machine, id: &ResourceId) -> Result<(), Error> {
    let Some(keeper) = machine.volumes() else { return Ok(()) };
    keeper.remove(&launch::root_of(id)).await.map_err(|fault| Error::Launch(fault.to_string()))
}
