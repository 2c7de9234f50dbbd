//! Finds the instances of an earlier node again.

use crate::body::{self, Body, Process};
use crate::body_kind::BodyKind;
use crate::cgroup::{Groups, Membership};
use crate::instance::{Holdings, Instance, Origin};
use crate::records::{End, Record};
use crate::shared::Stores;
use crate::state::State;
use std::collections::HashSet;
use std::io;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use types::Timestamp;
use types::instance::{Exit, Happened, InstanceName};

/// Takes over instances that are alive, keeps those that have ended, and removes what was half made
/// or is unknown.
pub(crate) fn find(stores: &Arc<Stores>, groups: &Groups, boot: &str) -> io::Result<Vec<Instance>> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    let origins = adopt_all(stores, groups, boot)?;
    stores
        .journal
        .record_all(origins.iter().filter_map(|origin| seen_again(&origin.id, origin.state)));
    for origin in origins {
        known.insert((origin.owner.clone(), origin.id.clone()));
        found.push(Instance::new(origin, Arc::clone(stores)));
    }
    for (owner, id) in groups.list()? {
        if !known.contains(&(owner.clone(), id.clone())) {
            groups.find(owner.as_ref(), &id).sweep()?;
        }
    }
    groups.tidy()?;
    body::keep_only(stores, &known.iter().map(|(_, id)| id).collect())?;
    Ok(found)
}

/// Adopts all instances that are recorded, on all cores: there may be thousands, and nothing is
/// served meanwhile.
fn adopt_all(stores: &Stores, groups: &Groups, boot: &str) -> io::Result<Vec<Origin>> {
    let recorded = stores.records.list()?;
    // A record that cannot be read still tells that there was an instance.
    let adopt = &|id: &InstanceName| match stores.records.of(id).ok() {
        Some(record) if record.boot == boot => of_this_boot(stores, groups, id, &record),
        record => of_earlier_boot(stores, groups, id, record).map(Some),
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let part = recorded.len().div_ceil(cores).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = recorded
            .chunks(part)
            .map(|part| scope.spawn(move || part.iter().map(adopt).collect::<io::Result<Vec<_>>>()))
            .collect();
        let mut origins = Vec::new();
        for part in parts {
            let adopted = part.join().unwrap_or_else(|panic| resume_unwind(panic));
            origins.extend(adopted?.into_iter().flatten());
        }
        Ok(origins)
    })
}

fn of_this_boot(
    stores: &Stores,
    groups: &Groups,
    id: &InstanceName,
    record: &Record,
) -> io::Result<Option<Origin>> {
    let group = groups.find(record.owner.as_ref(), id);
    let Some(identity) = &record.process else {
        group.sweep()?;
        stores.journal.record(stores.world.now(), id, Happened::Destroyed);
        stores.records.remove(id)?;
        return Ok(None);
    };
    let process = if record.end.is_none() { Process::find(identity) } else { None };
    let body = Body::adopt(stores, id, record, group, process);
    let state = match (body.process(), record.end) {
        (Some(_), _) => {
            let since = stores.world.now();
            let frozen = body.is_frozen()? && !record.is_held;
            if !frozen {
                // The earlier node may have died in the middle of freezing, and the kernel would go
                // on with that. Or it held the instance for a snapshot.
                body.thaw()?;
            }
            if record.is_held {
                stores.records.put_held(id, false)?;
            }
            if frozen { State::Paused { since } } else { State::Running { since } }
        }
        (None, Some(End { at, exit })) => State::Exited { at, exit },
        (None, None) => {
            gone(stores, id, record.clone(), Exit::Missed, last_seen(stores, &record.boot))?
        }
    };
    let membership = record.owner.as_ref().map(|owner| groups.join(owner)).transpose()?;
    Ok(Some(origin(stores, id, record, Adopted { body, state, membership })))
}

/// Returns the fact that an instance which lives on is paused or runs. The earlier node may have
/// paused or resumed it without being able to record it.
fn seen_again(id: &InstanceName, state: State) -> Option<(Timestamp, InstanceName, Happened)> {
    let (since, happened) = match state {
        State::Paused { since } => (since, Happened::Paused),
        State::Running { since } => (since, Happened::Resumed),
        State::Stopping { .. } | State::Exited { .. } => return None,
    };
    Some((since, id.clone(), happened))
}

/// Returns the fact that says what has become of an instance. One that is about to end will say so.
pub(crate) fn said_again(
    id: &InstanceName,
    state: State,
) -> Option<(Timestamp, InstanceName, Happened)> {
    match state {
        State::Exited { at, exit } => Some((at, id.clone(), Happened::Exited(exit))),
        state => seen_again(id, state),
    }
}

/// What was found of an instance.
struct Adopted {
    body: Body,
    state: State,
    membership: Option<Membership>,
}

fn origin(stores: &Stores, id: &InstanceName, record: &Record, adopted: Adopted) -> Origin {
    let Adopted { body, state, membership } = adopted;
    let snapshot = record.snapshot.as_ref().and_then(|name| stores.snapshots.hold_again(name));
    let awake = matches!(state, State::Running { .. });
    Origin {
        id: id.clone(),
        slot: record.slot,
        memory_mb: record.memory_mb,
        body,
        state,
        owner: record.owner.clone(),
        firewall: record.firewall.clone(),
        holdings: Holdings {
            // An instance that has ended has no disks any more.
            _stake: stores
                .shares
                .adopt(&record.owner, if record.end.is_none() { &record.disks } else { &[] }),
            _membership: membership,
            _snapshot: snapshot,
        },
        promise: awake.then(|| stores.shares.adopt_promise(&record.owner, record.memory_mb)),
    }
}

/// Handles a record from before the machine's last start: whatever the instance was, it is gone.
/// Even an unreadable record tells that much.
fn of_earlier_boot(
    stores: &Stores,
    groups: &Groups,
    id: &InstanceName,
    record: Option<Record>,
) -> io::Result<Origin> {
    let unreadable = || Record { id: Some(id.clone()), body: BodyKind::Runc, ..Record::default() };
    let mut record = record.unwrap_or_else(unreadable);
    record.disks.clear();
    // Nothing of it is mounted any more.
    record.snapshot = None;
    let state = match record.end {
        Some(End { at, exit }) => State::Exited { at, exit },
        None => gone(stores, id, record.clone(), Exit::Lost, stores.world.now())?,
    };
    let group = groups.find(record.owner.as_ref(), id);
    let body = Body::adopt(stores, id, &record, group, None);
    Ok(origin(stores, id, &record, Adopted { body, state, membership: None }))
}

/// Returns the latest time at which an instance of this machine start was certainly alive.
fn last_seen(stores: &Stores, boot: &str) -> Timestamp {
    let now = stores.world.now();
    let since_ms = stores.sign.last(boot).map_or(0, |sign| stores.world.uptime_ms() - sign);
    now.plus_ms(-since_ms.max(0))
}

fn gone(
    stores: &Stores,
    id: &InstanceName,
    mut record: Record,
    exit: Exit,
    at: Timestamp,
) -> io::Result<State> {
    stores.journal.record(at, id, Happened::Exited(exit));
    record.end = Some(End { at, exit });
    stores.records.put(id, &record)?;
    Ok(State::Exited { at, exit })
}
