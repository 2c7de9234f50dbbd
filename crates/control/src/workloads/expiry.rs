//! What time does by itself: sandboxes and previews expire, records of ended sandboxes go,
//! schedules and cron triggers fire.

use super::alarm::NAP_MAX;
use super::{cron, rows, schedules};
use crate::control::Control;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use store::Tx;
use store::resources::{self, Query, Stored};
use types::ids::ResourceId;
use types::kinds::{Preview, Sandbox, Schedule};
use types::parts::Status;
use types::{KindName, Timestamp};

/// After a failure, a row is looked at again.
const RETRY_AFTER_S: i64 = 5;
const CHILDREN_MAX: i64 = 10_000;

pub(super) async fn run(control: Control) {
    let alarm = &control.workloads.alarm;
    while let Err(error) = schedules::close_interrupted(&control).await {
        tracing::error!(%error, "what was being fired could not be closed; it is tried again");
        tokio::time::sleep(NAP_MAX).await;
    }
    loop {
        match alarm.take(control.world.now()) {
            Ok((id, kind)) => {
                if let Err(error) = act(&control, &id, kind).await {
                    tracing::error!(%error, %id, "what was due could not be done; it is tried again");
                    alarm.set(id, kind, Some(control.world.now().plus_s(RETRY_AFTER_S)));
                }
            }
            Err(nap) => {
                let _ = tokio::time::timeout(nap, alarm.changed.notified()).await;
            }
        }
    }
}

/// When something has to be done about a row, if ever.
pub(super) fn due(
    control: &Control,
    tx: &mut Tx<'_>,
    row: &Stored,
) -> Result<Option<Timestamp>, Error> {
    Ok(match row.kind {
        KindName::Job => cron::due(control, tx, row)?,
        KindName::Sandbox => {
            let held = Held::<Sandbox>::read(row.clone())?;
            match held.row.status {
                Some(Status::Terminated) => {
                    ended_at(&held).map(|end| end.plus_s(held.wish.retention_s()))
                }
                _ => held.wish.expires_at(row.created_at, held.state.last_used_at),
            }
        }
        KindName::Preview => Held::<Preview>::read(row.clone())?.wish.expires_at(row.created_at),
        KindName::Schedule => schedules::due(&Held::<Schedule>::read(row.clone())?),
        _ => None,
    })
}

fn ended_at(held: &Held<Sandbox>) -> Option<Timestamp> {
    held.state.lifecycle.events.last().map(|event| event.time)
}

async fn act(control: &Control, id: &ResourceId, kind: KindName) -> Result<(), Error> {
    match kind {
        KindName::Schedule => schedules::fire(control, id).await,
        KindName::Job => cron::fire(control, id).await,
        _ => expire(control, id.clone()).await,
    }
}

/// Ends or removes what is due. The row decides, because it may have changed since the alarm was
/// set.
async fn expire(control: &Control, id: ResourceId) -> Result<(), Error> {
    let of = control.clone();
    let work = move |tx: &mut Tx<'_>| {
        let Some(row) = resources::find_by_id(tx, &id)? else { return Ok(()) };
        if due(&of, tx, &row)?.is_none_or(|due| due > of.world.now()) {
            return Ok(());
        }
        match row.kind {
            KindName::Sandbox => expire_sandbox(&of, tx, &id),
            KindName::Preview => remove::<Preview>(&of, tx, &id),
            _ => Ok(()),
        }
    };
    control.store.write(work).await
}

fn expire_sandbox(control: &Control, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let Some(held) = rows::lock::<Sandbox>(tx, id)? else { return Ok(()) };
    if held.row.status == Some(Status::Terminated) {
        return remove::<Sandbox>(control, tx, id);
    }
    let Some((context, _)) = rows::context(control, tx, &held.row.workspace)? else {
        return Ok(());
    };
    Sandbox::release(&context, tx, &held)?;
    for kind in [KindName::Preview, KindName::Schedule] {
        let query = Query {
            limit: CHILDREN_MAX,
            ..Query::new(&held.row.workspace, kind, Some(&held.row.name))
        };
        for child in resources::list(tx, &query)? {
            resources::delete(tx, &child, context.actor())?;
        }
    }
    let mut state = held.state.clone();
    let message = "its time was over, as its spec says";
    state.lifecycle.record("expiration", Status::Terminated, message, control.world.now());
    state.activity = None;
    rows::put_state(tx, held, state).map(drop)
}

fn remove<K: Managed>(control: &Control, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let Some(held) = rows::lock::<K>(tx, id)? else { return Ok(()) };
    let Some((context, _)) = rows::context(control, tx, &held.row.workspace)? else {
        return Ok(());
    };
    engine::remove::<K>(&context, tx, &held.parents(), &held.row.name).map(drop)
}
