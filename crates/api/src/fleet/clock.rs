//! What time does by itself: sandboxes and previews expire, records of ended sandboxes go,
//! schedules and cron triggers fire.

use super::{cron, rows, schedules};
use crate::app::App;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use store::Tx;
use store::resources::{self, Query, Stored};
use tokio::sync::Notify;
use types::ids::ResourceId;
use types::kinds::{Preview, Sandbox, Schedule};
use types::parts::Status;
use types::{KindName, Timestamp};

/// Clocks of machines are set now and then, so nobody sleeps longer than this at once.
const NAP_MAX: Duration = Duration::from_secs(5);
/// After a failure, a row is looked at again.
const RETRY_AFTER_S: i64 = 5;
const CHILDREN_MAX: i64 = 10_000;

/// When which row is due.
#[derive(Default)]
pub(super) struct Alarm {
    times: Mutex<Times>,
    changed: Notify,
}

#[derive(Default)]
struct Times {
    order: BTreeSet<(Timestamp, ResourceId)>,
    rows: HashMap<ResourceId, (Timestamp, KindName)>,
}

impl Alarm {
    /// Replaces what was known of a row.
    pub(super) fn set(&self, id: ResourceId, kind: KindName, due: Option<Timestamp>) {
        let mut times = self.times.lock();
        if let Some((old, _)) = times.rows.remove(&id) {
            times.order.remove(&(old, id.clone()));
        }
        if let Some(due) = due {
            times.order.insert((due, id.clone()));
            times.rows.insert(id, (due, kind));
            self.changed.notify_one();
        }
    }

    /// Takes the first row that is due, or says how long there is none.
    fn take(&self, now: Timestamp) -> Result<(ResourceId, KindName), Duration> {
        let mut times = self.times.lock();
        match times.order.first().cloned() {
            Some((due, id)) if due <= now => {
                times.order.remove(&(due, id.clone()));
                let kind = times.rows.remove(&id).map_or(KindName::Sandbox, |(_, kind)| kind);
                Ok((id, kind))
            }
            Some((due, _)) => {
                Err(Duration::from_millis(u64::try_from(due.since(now)).unwrap_or(0)).min(NAP_MAX))
            }
            None => Err(NAP_MAX),
        }
    }
}

pub(super) async fn run(app: App) {
    let alarm = &app.fleet.0.clock;
    while let Err(error) = schedules::close_interrupted(&app).await {
        tracing::error!(%error, "what was being fired could not be closed; it is tried again");
        tokio::time::sleep(NAP_MAX).await;
    }
    loop {
        match alarm.take(app.world.now()) {
            Ok((id, kind)) => {
                if let Err(error) = act(&app, &id, kind).await {
                    tracing::error!(%error, %id, "what was due could not be done; it is tried again");
                    alarm.set(id, kind, Some(app.world.now().plus_s(RETRY_AFTER_S)));
                }
            }
            Err(nap) => {
                let _ = tokio::time::timeout(nap, alarm.changed.notified()).await;
            }
        }
    }
}

/// When something has to be done about a row, if ever.
pub(super) fn due(app: &App, tx: &mut Tx<'_>, row: &Stored) -> Result<Option<Timestamp>, Error> {
    Ok(match row.kind {
        KindName::Job => cron::due(app, tx, row)?,
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

async fn act(app: &App, id: &ResourceId, kind: KindName) -> Result<(), Error> {
    match kind {
        KindName::Schedule => schedules::fire(app, id).await,
        KindName::Job => cron::fire(app, id).await,
        _ => expire(app, id.clone()).await,
    }
}

/// Ends or removes what is due. The row decides, because it may have changed since the alarm was
/// set.
async fn expire(app: &App, id: ResourceId) -> Result<(), Error> {
    let of = app.clone();
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
    app.store.write(work).await
}

fn expire_sandbox(app: &App, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let Some(held) = rows::lock::<Sandbox>(tx, id)? else { return Ok(()) };
    if held.row.status == Some(Status::Terminated) {
        return remove::<Sandbox>(app, tx, id);
    }
    let Some((desk, _)) = rows::desk(app, tx, &held.row.workspace)? else { return Ok(()) };
    Sandbox::release(&desk, tx, &held)?;
    for kind in [KindName::Preview, KindName::Schedule] {
        let query = Query {
            limit: CHILDREN_MAX,
            ..Query::new(&held.row.workspace, kind, Some(&held.row.name))
        };
        for child in resources::list(tx, &query)? {
            resources::delete(tx, &child, desk.actor())?;
        }
    }
    let mut state = held.state.clone();
    let message = "its time was over, as its spec says";
    state.lifecycle.record("expiration", Status::Terminated, message, app.world.now());
    state.activity = None;
    rows::put_state(tx, held, state).map(drop)
}

fn remove<K: Managed>(app: &App, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let Some(held) = rows::lock::<K>(tx, id)? else { return Ok(()) };
    let Some((desk, _)) = rows::desk(app, tx, &held.row.workspace)? else { return Ok(()) };
    engine::remove::<K>(&desk, tx, &held.parents(), &held.row.name).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_due_comes_first_and_a_row_has_one_time() {
        let alarm = Alarm::default();
        let id = |name: &str| ResourceId::known(format!("res_{name}"));
        alarm.set(id("late"), KindName::Sandbox, Some(Timestamp::from_ms(9_000)));
        alarm.set(id("early"), KindName::Preview, Some(Timestamp::from_ms(1_000)));
        alarm.set(id("moved"), KindName::Sandbox, Some(Timestamp::from_ms(500)));
        alarm.set(id("moved"), KindName::Sandbox, Some(Timestamp::from_ms(2_000)));
        alarm.set(id("gone"), KindName::Sandbox, Some(Timestamp::from_ms(1)));
        alarm.set(id("gone"), KindName::Sandbox, None);
        let now = Timestamp::from_ms(2_000);
        assert_eq!(alarm.take(now), Ok((id("early"), KindName::Preview)));
        assert_eq!(alarm.take(now), Ok((id("moved"), KindName::Sandbox)));
        assert_eq!(alarm.take(now), Err(NAP_MAX));
        assert_eq!(alarm.take(Timestamp::from_ms(8_900)), Err(Duration::from_millis(100)));
    }
}
