//! Finding the instances of an earlier node again.

use crate::cgroup::{Group, Groups, Membership};
use crate::console;
use crate::instance::{Body, Book, Holdings, Instance, Origin};
use crate::process::Identity;
use crate::records::{End, Record, StartedBy};
use crate::state::State;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use types::Timestamp;
use types::instance::{Exit, Happened, InstanceName};

/// Takes over what lives, keeps what has ended, and removes what was half made and what nobody
/// knows.
pub(crate) fn find(book: &Arc<Book>, groups: &Groups, boot: &str) -> io::Result<Vec<Instance>> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    for (id, record) in book.records.list()? {
        let origin = match record {
            Some(record) if record.boot == boot => of_this_boot(book, groups, &id, &record)?,
            record => Some(of_earlier_boot(book, groups, &id, record)?),
        };
        if let Some(origin) = origin {
            known.insert((origin.owner.clone(), id));
            found.push(Instance::new(origin, Arc::clone(book)));
        }
    }
    for (owner, id) in groups.list()? {
        if !known.contains(&(owner.clone(), id.clone())) {
            groups.find(owner.as_ref(), &id).sweep()?;
        }
    }
    groups.tidy()?;
    for id in book.bundles.list()? {
        if !known.iter().any(|(_, known)| *known == id) {
            book.bundles.remove(&id)?;
        }
    }
    Ok(found)
}

fn of_this_boot(
    book: &Book,
    groups: &Groups,
    id: &InstanceName,
    record: &Record,
) -> io::Result<Option<Origin>> {
    let group = groups.find(record.owner.as_ref(), id);
    let Some(identity) = &record.process else {
        group.sweep()?;
        book.journal.record(book.world.now(), id, Happened::Destroyed)?;
        book.records.remove(id)?;
        return Ok(None);
    };
    let body = if record.end.is_none() { body(identity) } else { None };
    let state = match (&body, record.end) {
        (Some(_), _) => {
            let since = book.world.now();
            let frozen = group.frozen()?;
            if !frozen {
                // The earlier node may have ended in the middle of freezing, and the kernel would
                // go on with it.
                group.thaw()?;
            }
            book.journal.record(
                since,
                id,
                if frozen { Happened::Paused } else { Happened::Resumed },
            )?;
            if frozen { State::Paused { since } } else { State::Running { since } }
        }
        (None, Some(End { at, exit })) => State::Exited { at, exit },
        (None, None) => {
            gone(book, id, record.clone(), Exit::Missed, last_seen(book, &record.boot))?
        }
    };
    let membership = record.owner.as_ref().map(|owner| groups.join(owner)).transpose()?;
    Ok(Some(origin(book, id, record, Found { group, body, state, membership })))
}

/// What was found of an instance.
struct Found {
    group: Group,
    body: Option<Body>,
    state: State,
    membership: Option<Membership>,
}

fn origin(book: &Book, id: &InstanceName, record: &Record, found: Found) -> Origin {
    let Found { group, body, state, membership } = found;
    let awake = matches!(state, State::Running { .. });
    Origin {
        id: id.clone(),
        seat: record.seat,
        memory_mb: record.memory_mb,
        started_by: record.started_by,
        group,
        body,
        state,
        owner: record.owner.clone(),
        holdings: Holdings {
            // What has ended has no disks any more.
            _stake: book
                .shares
                .adopt(&record.owner, if record.end.is_none() { &record.disks } else { &[] }),
            _membership: membership,
        },
        promise: awake.then(|| book.shares.adopt_promise(&record.owner, record.memory_mb)),
    }
}

/// The machine was started anew since, so whatever it was is gone. Even a record that cannot be
/// read tells so much.
fn of_earlier_boot(
    book: &Book,
    groups: &Groups,
    id: &InstanceName,
    record: Option<Record>,
) -> io::Result<Origin> {
    let unreadable = Record {
        boot: String::new(),
        seat: 0,
        memory_mb: 0,
        owner: None,
        disks: Vec::new(),
        started_by: StartedBy::Tool,
        process: None,
        end: None,
    };
    let mut record = record.unwrap_or(unreadable);
    record.disks.clear();
    let state = match record.end {
        Some(End { at, exit }) => State::Exited { at, exit },
        None => gone(book, id, record.clone(), Exit::Lost, book.world.now())?,
    };
    let group = groups.find(record.owner.as_ref(), id);
    Ok(origin(book, id, &record, Found { group, body: None, state, membership: None }))
}

/// When an instance of this start of the machine could have been seen to run at the latest.
fn last_seen(book: &Book, boot: &str) -> Timestamp {
    let now = book.world.now();
    let since_ms = book.sign.last(boot).map_or(0, |sign| book.world.uptime_ms() - sign);
    now.plus_ms(-since_ms.max(0))
}

fn gone(
    book: &Book,
    id: &InstanceName,
    mut record: Record,
    exit: Exit,
    at: Timestamp,
) -> io::Result<State> {
    book.journal.record(at, id, Happened::Exited(exit))?;
    record.end = Some(End { at, exit });
    book.records.put(id, &record)?;
    Ok(State::Exited { at, exit })
}

fn body(identity: &Identity) -> Option<Body> {
    let pidfd = identity.open()?;
    let network = File::open(format!("/proc/{}/ns/net", identity.pid)).ok()?.into();
    let console = console::reopen(identity.pid).ok();
    // The descriptors above are of the right process only if it still lives now.
    identity.open()?;
    Some(Body { pid: identity.pid, pidfd, network, console })
}
