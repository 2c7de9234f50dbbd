//! The route of a deployment, as it is published to the edge.

use super::deployable::{Deployable, PORT};
use super::live::State;
use crate::addresses;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::executions::calls::seconds;
use crate::workloads::followed::Reader;
use crate::workloads::rows::{self, Workspaces};
use store::Tx;
use types::edge::{Replica, RouteChange, Scale, Serving, Target, TriggerRoute, WorkloadRoute};
use types::parts::{Status, TriggerType};

pub(super) fn of<K: Deployable>(
    control: &Control,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<Option<RouteChange>, Error> {
    let mut reader = Reader { control, workspaces: Workspaces::default(), inventory: None };
    route(&mut reader, tx, held)
}

pub(super) fn route<K: Deployable>(
    reader: &mut Reader<'_>,
    tx: &mut Tx<'_>,
    held: &Held<K>,
) -> Result<Option<RouteChange>, Error> {
    let Some((context, workspace)) = rows::context(reader.control, tx, &held.row.workspace)? else {
        return Ok(None);
    };
    let id = &held.row.id;
    let hosts = addresses::hosts_of(&context, tx, id, held.wish.urls())?;
    let scale = scale(reader.control, &held.wish);
    let sticky = held.wish.revisions().sticky_session_ttl.unwrap_or(0);
    Ok(Some(RouteChange::Workload(WorkloadRoute {
        kind: K::NAME,
        id: id.clone(),
        workspace: workspace.id,
        workspace_name: workspace.name,
        name: held.row.name.clone(),
        label: held.state.label.clone(),
        hosts,
        triggers: triggers(&held.wish),
        public: held.wish.is_public(),
        port: Some(port(held)?),
        scale: Scale { max: scale.max, concurrency: scale.concurrency },
        timeout_s: held.wish.request_timeout_s().map(seconds),
        sticky_s: crate::engine::whole(id, sticky)?,
        serving: serving(reader.control, held)?,
    })))
}

/// Returns the port on which its programs listen, or will listen.
fn port<K: Deployable>(held: &Held<K>) -> Result<u16, Error> {
    if let Some(bound) = held.wish.bound(&held.row.id)? {
        return Ok(bound.port);
    }
    if let Some(served) = &held.state.serving {
        return Ok(served.port);
    }
    let program = held.wish.program(&held.row.id)?;
    Ok(program.map_or(PORT, |program| program.port))
}

/// Returns the paths at which requests fire its triggers, for the triggers that are on.
fn triggers<K: Deployable>(wish: &K) -> Vec<TriggerRoute> {
    let on = wish.triggers().iter().filter(|trigger| trigger.is_on());
    on.filter_map(|trigger| {
        Some(TriggerRoute {
            address: trigger.address(K::NAME, wish.name())?,
            public: trigger.is_public(),
            waits: trigger.kind == Some(TriggerType::Http),
        })
    })
    .collect()
}

/// Returns how many replicas there may be: as the wish says, within the limits of the server.
pub(super) fn scale<K: Deployable>(control: &Control, wish: &K) -> super::plan::Scale {
    let settings = &control.settings.deployments;
    let (min, max) = wish.scale();
    let whole = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    // A deployment without any replicas would be a disabled one.
    let max = max.map(whole).filter(|max| *max > 0);
    let max = max.unwrap_or(settings.replicas).clamp(1, settings.replicas_max);
    let max = if wish.holder().is_some() { 1 } else { max };
    let min = min.map_or(0, whole).min(max);
    super::plan::Scale { min, max, concurrency: settings.concurrency }
}

fn serving<K: Deployable>(control: &Control, held: &Held<K>) -> Result<Serving, Error> {
    let state = &held.state;
    let off = |why: &str| Ok(Serving::Off { why: why.to_owned() });
    match held.row.status {
        Some(Status::Deactivated | Status::Deactivating) => return off("is disabled"),
        Some(Status::Deleting | Status::Terminated) => return off("has ended"),
        _ => {}
    }
    // The sandbox's own route says where it runs.
    if let Some(bound) = held.wish.bound(&held.row.id)? {
        return Ok(Serving::Sandbox(bound.sandbox.to_owned()));
    }
    if let Some(machine) = state.machine.as_deref().filter(|machine| !control.is_here(machine)) {
        return off(&control.runs_elsewhere(machine));
    }
    match (state.serves(), held.row.status) {
        (Some(serving), _) => Ok(Serving::To(targets(control, held, serving))),
        (None, Some(Status::Failed)) => off(&format!("failed: {}", state.lifecycle.last_message())),
        (None, _) if held.wish.program(&held.row.id)?.is_none() => off("has no image yet"),
        (None, _) => Ok(Serving::Starting),
    }
}

fn targets<K: Deployable>(control: &Control, held: &Held<K>, serving: &str) -> Vec<Target> {
    let canary = proven_canary(held).filter(|(canary, _)| canary != serving);
    let share = canary.as_ref().map_or(0, |(_, percent)| *percent);
    let serving = target(control, held, serving.to_owned(), 100 - share);
    let canary = canary.map(|(canary, percent)| target(control, held, canary, percent));
    std::iter::once(serving).chain(canary).collect()
}

/// Returns the wished canary with its share of the requests, if the share is not zero.
pub(super) fn wished_canary<K: Deployable>(wish: &K) -> Option<(String, u32)> {
    let revisions = wish.revisions();
    let percent = revisions.canary_percent.unwrap_or(0).clamp(0, 100);
    let percent = u32::try_from(percent).ok().filter(|percent| *percent > 0)?;
    let canary = revisions.canary.filter(|canary| !canary.is_empty())?;
    Some((canary, percent)).filter(|(canary, _)| revisions.active.as_ref() != Some(canary))
}

/// Like [`wished_canary`], but only if it was ready once.
pub(super) fn proven_canary<K: Deployable>(held: &Held<K>) -> Option<(String, u32)> {
    let proven = |(canary, _): &(String, u32)| {
        held.state.canary.as_ref() == Some(canary) && !held.state.has_failed(canary)
    };
    wished_canary(&held.wish).filter(proven)
}

/// Returns a revision with those of its replicas that take requests.
fn target<K: Deployable>(
    control: &Control,
    held: &Held<K>,
    revision: String,
    weight: u32,
) -> Target {
    let machine = control.machine().map(|machine| machine.name().to_owned()).unwrap_or_default();
    let replicas = control.workloads.deployments.replicas(&held.row.id);
    let ready = replicas.into_iter().filter(|(_, replica)| {
        replica.id.revision == revision && matches!(replica.state, State::Ready { .. })
    });
    let replicas = ready
        .map(|(instance, _)| Replica { machine: machine.clone(), instance: instance.to_string() })
        .collect();
    Target { revision, weight, replicas }
}
