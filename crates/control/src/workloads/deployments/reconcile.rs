//! One look at one deployment: makes what runs match what its row and its requests ask for. It may
//! be repeated at any time, and the next look repairs whatever a kill between two steps leaves.

use super::deployable::Deployable;
use super::launch::{self, Revision};
use super::live::{DEMAND_LIFE, Tokens};
use super::plan::{Change, Limits, Plan, Situation, Wish, plan};
use super::replica::{Begin, Task};
use super::route::{self, wished_canary};
use super::{outcome, soon};
use crate::addresses;
use crate::context::Context;
use crate::control::Control;
use crate::egress;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::machine::Machine;
use crate::models::access;
use crate::placement;
use crate::workloads::{instances, rows};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use store::identity::workspaces::Workspace;
use tokio::time::Instant;
use types::KindName;
use types::edge::RouteChange;
use types::ids::ResourceId;
use types::instance::ReplicaId;
use types::parts::Status;

/// How long a draining replica is left alone at first, since a request may be on its way to it.
const DRAIN_MIN: Duration = Duration::from_millis(500);

struct Case<K: types::Kind> {
    context: Context,
    workspace: Workspace,
    held: Held<K>,
    /// The only machine that has what it begins with or mounts, if there is such.
    required: Option<String>,
    /// Whether what serves, or is to serve, mounts volumes, which have one writer.
    mounts_volumes: bool,
}

pub(super) async fn reconcile<K: Deployable>(
    control: &Control,
    id: &ResourceId,
) -> Result<(), Error> {
    let Some(machine) = control.machine().cloned() else { return Ok(()) };
    let _lock = control.workloads.lock(id).await;
    let all = &control.workloads.deployments;
    all.begin(id, K::NAME);
    let Some(case) = read::<K>(control, id).await? else {
        end_all(control, &machine, id);
        return Ok(());
    };
    let its = case.held.state.machine.as_ref().or(case.required.as_ref());
    let here = its.is_none_or(|name| name == machine.name());
    if !here {
        end_all(control, &machine, id);
        return Ok(());
    }
    look_after_found(&case, &machine).await?;
    let plan = plan(&situation(control, &case));
    for change in plan.changes.iter().filter(|change| matters(change, &case)) {
        if !outcome::apply::<K>(control, id, change).await? {
            // The wish has changed meanwhile, and the plan was made for the old one.
            soon::look(control, K::NAME, id.clone());
            return Ok(());
        }
    }
    take_hosts(&case).await?;
    let now = Instant::now();
    plan.drain.iter().for_each(|instance| all.drain(id, instance, now));
    publish::<K>(control, id).await?;
    plan.end.iter().for_each(|instance| all.end(id, instance));
    all.look_in(id, plan.again);
    launch_all(control, &machine, case, plan).await
}

/// Skips changes that the row has already.
fn matters<K: Deployable>(change: &Change, case: &Case<K>) -> bool {
    let status = case.held.row.status;
    match change {
        Change::SayOff => status == Some(Status::Deactivating),
        Change::SayBound => status == Some(Status::Deploying),
        Change::Switch(_) | Change::Prove(_) => true,
    }
}

async fn read<K: Deployable>(control: &Control, id: &ResourceId) -> Result<Option<Case<K>>, Error> {
    let (of, id) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::find::<K>(tx, &id)? else { return Ok(None) };
        let Some((context, workspace)) = rows::context(&of, tx, &held.row.workspace)? else {
            return Ok(None);
        };
        // An error in it is reported by the launch.
        let program = held.wish.program(&held.row.id).ok().flatten();
        let begins = program.and_then(|program| program.snapshot);
        let holder = held.wish.holder();
        let required = placement::required(&context, tx, begins.as_ref(), holder.as_ref())?;
        let mounts_volumes = holder.is_some() || serving_mounts_volumes(&context, tx, &held)?;
        Ok::<_, Error>(Some(Case { context, workspace, held, required, mounts_volumes }))
    };
    control.store.read(work).await
}

fn serving_mounts_volumes<K: Deployable>(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<bool, Error> {
    let Some(revision) = held.state.serves().filter(|_| K::MOUNTS_VOLUMES) else {
        return Ok(false);
    };
    let serving = engine::wish_of::<K>(context, tx, &held.row.id, revision)?;
    Ok(serving.is_some_and(|wish| wish.holder().is_some()))
}

/// Ends all replicas of a deployment that does not run here.
fn end_all(control: &Control, machine: &Arc<dyn Machine>, id: &ResourceId) {
    let all = &control.workloads.deployments;
    for (instance, _) in all.found(id) {
        all.take_found(id, &instance);
        let (machine, control, id) = (Arc::clone(machine), control.clone(), id.clone());
        // No task looks after this one.
        tokio::spawn(async move {
            instances::retire(&*machine, &instance).await;
            control.workloads.deployments.remove(&id, &instance);
            control.workloads.deployments.forget(&id);
        });
    }
    for (instance, _) in all.replicas(id) {
        all.end(id, &instance);
    }
    all.forget(id);
}

/// Starts tasks for replicas that an earlier run of this program has launched.
async fn look_after_found<K: Deployable>(
    case: &Case<K>,
    machine: &Arc<dyn Machine>,
) -> Result<(), Error> {
    let control = &case.context.control;
    let (all, id) = (&control.workloads.deployments, &case.held.row.id);
    for (instance, replica) in all.found(id) {
        // If this fails, the next look finds the replica again.
        let found = revision(case, &replica.id.revision, Purpose::LookAfter).await?;
        all.take_found(id, &instance);
        let (port, memory_mb) = match found {
            Ok(revision) => {
                egress::keep_to(control, Arc::clone(machine), instance.clone(), revision.rules());
                (revision.port, revision.memory_mb())
            }
            // It is about to be ended anyway.
            Err(_) => (0, 0),
        };
        let context = case.context.clone();
        let (machine, name) = (Arc::clone(machine), case.held.row.name.clone());
        let of = PhantomData::<fn() -> K>;
        let task = Task { context, machine, name, instance, replica, port, memory_mb, of };
        task.spawn(Begin::Found);
    }
    Ok(())
}

/// What a revision is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To look after an existing replica.
    LookAfter,
    /// To launch a new one, which costs money.
    Launch,
}

async fn revision<K: Deployable>(
    case: &Case<K>,
    revision: &str,
    purpose: Purpose,
) -> Result<Result<Revision, String>, Error> {
    let (context, workspace) = (case.context.clone(), case.workspace.clone());
    let (held, revision) = (case.held.clone(), revision.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        if purpose == Purpose::Launch
            && let Err(why) = launch::allowed(&context, tx)?
        {
            return Ok(Err(why));
        }
        launch::revision::<K>(&context, tx, (&workspace, &held), &revision)
    };
    case.context.control.store.read(work).await
}

/// Checks whether launches have to wait for access tokens. A service that the tenant chose gives
/// them, and it may take its time, so a look never waits for it: it comes back afterwards.
async fn awaits_tokens<K: Deployable>(case: &Case<K>) -> Result<bool, Error> {
    let (control, id) = (&case.context.control, &case.held.row.id);
    let all = &control.workloads.deployments;
    match all.tokens(id) {
        Tokens::Awaited => return Ok(true),
        // Without a token the launch fails, and says why.
        Tokens::Waited => {
            all.set_tokens(id, Tokens::Unknown);
            return Ok(false);
        }
        Tokens::Unknown => {}
    }
    let workspace = &case.workspace.id;
    let mut missing = Vec::new();
    for connection in connections(&case.held.wish) {
        if access::is_first(control, workspace, &connection).await? {
            missing.push(connection);
        }
    }
    if missing.is_empty() {
        return Ok(false);
    }
    all.set_tokens(id, Tokens::Awaited);
    let (control, workspace, id) = (control.clone(), workspace.clone(), id.clone());
    tokio::spawn(async move {
        for connection in missing {
            if let Err(error) = access::first(&control, &workspace, &connection).await {
                tracing::error!(%error, %id, connection, "an access token could not be waited for");
            }
        }
        control.workloads.deployments.set_tokens(&id, Tokens::Waited);
        soon::look(&control, K::NAME, id);
    });
    Ok(true)
}

/// Returns the connections that a wish names.
fn connections<K: Deployable>(wish: &K) -> impl Iterator<Item = String> {
    let references = wish.references().into_iter();
    references.filter(|to| to.kind == KindName::IntegrationConnection).map(|to| to.name)
}

fn situation<K: Deployable>(control: &Control, case: &Case<K>) -> Situation {
    let (id, state) = (&case.held.row.id, &case.held.state);
    let (all, now) = (&control.workloads.deployments, Instant::now());
    let load = |instance: &_| control.edge.as_ref().and_then(|edge| edge.load(instance));
    let replicas = all.replicas(id).into_iter();
    let replicas =
        replicas.map(|(instance, replica)| replica.seen(&instance, load(&instance), now)).collect();
    let revisions = case.held.wish.revisions();
    let wished = |revision: &str| {
        [revisions.active.as_deref(), revisions.canary.as_deref(), state.serves()]
            .contains(&Some(revision))
    };
    all.keep_pauses(id, wished);
    let (demands, mut pauses) = all.wants(id, now);
    let wish = wish(&case.held);
    if let Wish::On { next: Some(next), .. } = &wish
        && state.serves() != Some(next)
    {
        // A revision that was just asked for is tried at once, whatever happened to it before.
        pauses.remove(next);
    }
    Situation {
        wish,
        serving: state.serves().map(str::to_owned),
        proven: state.canary.clone(),
        failed: state.failed.iter().cloned().collect(),
        scale: route::scale(control, &case.held.wish),
        alone: case.mounts_volumes,
        replicas,
        demands,
        pauses,
        limits: limits(control),
    }
}

fn limits(control: &Control) -> Limits {
    let settings = &control.settings.deployments;
    Limits {
        extra_idle: settings.extra_idle,
        last_idle: settings.last_idle,
        drain_max: settings.drain_timeout,
        drain_min: DRAIN_MIN,
        starting_max: settings.starting_max,
        demand_life: DEMAND_LIFE,
    }
}

fn wish<K: Deployable>(held: &Held<K>) -> Wish {
    let canary = wished_canary(&held.wish).map(|(canary, _)| canary);
    let bound = held.wish.bound(&held.row.id).is_ok_and(|bound| bound.is_some());
    match held.row.status {
        Some(Status::Deploying) if !bound => {
            // Without an image a launch fails, and says so, unless an image is being built.
            let has_image = held.wish.program(&held.row.id).is_ok_and(|program| program.is_some());
            let ready = has_image || held.state.lifecycle.open_build().is_none();
            Wish::On { next: held.wish.revisions().active.filter(|_| ready), canary }
        }
        Some(
            Status::Deactivating | Status::Deactivated | Status::Deleting | Status::Terminated,
        ) => Wish::Off,
        _ if bound => Wish::Bound,
        // While it is being built, or after it failed, the revision that serves keeps serving.
        _ => Wish::On { next: None, canary },
    }
}

/// Takes hosts below domains that were verified since the wish was written.
async fn take_hosts<K: Deployable>(case: &Case<K>) -> Result<(), Error> {
    if case.held.wish.urls().is_empty() {
        return Ok(());
    }
    let (context, id) = (case.context.clone(), case.held.row.id.clone());
    let work = move |tx: &mut Tx<'_>| match rows::lock::<K>(tx, &id)? {
        Some(held) => addresses::take_free_hosts(&context, tx, &id, held.wish.urls()),
        // It was deleted since it was read, so nobody would give its hosts back.
        None => Ok(()),
    };
    case.context.control.store.write(work).await
}

/// Publishes the route as it is now.
async fn publish<K: Deployable>(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let _telling = control.workloads.telling.one(id).await;
    let (of, wanted) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| match rows::find::<K>(tx, &wanted)? {
        Some(held) => route::of(&of, tx, &held),
        None => Ok(Some(RouteChange::Gone(wanted.clone()))),
    };
    if let Some(route) = control.store.read(work).await? {
        control.publish(route);
    }
    Ok(())
}

async fn launch_all<K: Deployable>(
    control: &Control,
    machine: &Arc<dyn Machine>,
    mut case: Case<K>,
    plan: Plan,
) -> Result<(), Error> {
    let id = case.held.row.id.clone();
    if !plan.launch.is_empty() && awaits_tokens(&case).await? {
        return Ok(());
    }
    for (of, count) in plan.launch {
        for _ in 0..count {
            // Told before a machine is claimed: the image may be built on another one.
            if let Some(why) = lacks_image(&case, &of).await? {
                outcome::ended::<K>(control, &id, &of, why, false).await;
                soon::look(control, K::NAME, id.clone());
                break;
            }
            let Some(number) = number(control, machine, &mut case).await? else { return Ok(()) };
            let revision = match revision(&case, &of, Purpose::Launch).await? {
                Ok(revision) => revision,
                Err(why) => {
                    outcome::ended::<K>(control, &id, &of, &why, false).await;
                    soon::look(control, K::NAME, id.clone());
                    break;
                }
            };
            let replica = ReplicaId { workload: id.clone(), revision: of.clone(), number };
            let (instance, replica) = control.workloads.deployments.add(replica);
            let launch = revision.replica(instance.clone());
            let task = Task {
                context: case.context.clone(),
                machine: Arc::clone(machine),
                name: case.held.row.name.clone(),
                instance,
                replica,
                port: revision.port,
                memory_mb: revision.memory_mb(),
                of: PhantomData::<fn() -> K>,
            };
            task.spawn(Begin::Launch(Box::new(launch)));
        }
    }
    Ok(())
}

/// Returns why a revision without an image cannot run.
async fn lacks_image<K: Deployable>(
    case: &Case<K>,
    revision: &str,
) -> Result<Option<&'static str>, Error> {
    let (context, id, revision) =
        (case.context.clone(), case.held.row.id.clone(), revision.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(wish) = engine::wish_of::<K>(&context, tx, &id, &revision)? else {
            return Ok(None);
        };
        Ok(wish.program(&id)?.is_none().then_some(launch::NO_IMAGE))
    };
    case.context.control.store.read(work).await
}

/// Returns the number of the next replica. `None` if another machine has claimed the deployment, or
/// it is gone.
async fn number<K: Deployable>(
    control: &Control,
    machine: &Arc<dyn Machine>,
    case: &mut Case<K>,
) -> Result<Option<u32>, Error> {
    let (all, id) = (&control.workloads.deployments, case.held.row.id.clone());
    if case.held.state.identity.is_some()
        && let Some(number) = all.number(&id)
    {
        return Ok(Some(number));
    }
    let Some(held) = outcome::claim::<K>(control, machine.name(), &id).await? else {
        return Ok(None);
    };
    // The row is newer than the one that was planned for: another revision may serve by now, but
    // the wish and its secrets are unchanged.
    case.held = held;
    Ok(all.number(&id))
}
