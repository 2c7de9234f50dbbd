//! Fires schedules of sandboxes: starts a command at its time, in a sandbox that is woken for it.
//!
//! A firing is written down before the sandbox is called, so one due time starts at most one
//! command, whenever a kill happens. Firings that a kill of this server interrupted are marked as
//! such at its next start.

use super::followed::{Followed, Look, Reader};
use super::{launch, rows};
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::machine::{Machine, MachineFault};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use store::Tx;
use store::firings::{self, Firing, Outcome};
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};
use types::instance::InstanceName;
use types::kinds::schedule::{SandboxScheduleInput, ScheduleType};
use types::kinds::{Sandbox, Schedule};
use types::parts::{Sensitive, Status};

/// A recurring schedule that was due longer ago than this, when nobody could fire it, waits for its
/// next time.
const LATE_MAX_S: i64 = 120;
/// One that last fired further ahead than this did so by a wrong clock, and goes on from now.
const AHEAD_MAX_S: i64 = 86_400;
/// How many characters of a sandbox's refusal are kept.
const ERROR_CHARACTERS_MAX: usize = 500;
const INTERRUPTED: &str =
    "the server was stopped while this was fired; whether the command was started is not known";

impl Followed for Schedule {
    const ROUTED: bool = false;

    fn look(_: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        Ok(Look { due: due(&held, tx.world().now()), ..Look::default() })
    }

    async fn act_when_due(control: &Control, id: &ResourceId) -> Result<(), Error> {
        fire(control, id).await
    }
}

/// Returns when a schedule has to be looked at.
fn due(held: &Held<Schedule>, now: Timestamp) -> Option<Timestamp> {
    due_since(&held.wish, since(held), held.state.is_some(), now)
}

fn due_since(
    schedule: &Schedule,
    since: Timestamp,
    fired: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let next = schedule.next_after(since, fired);
    next.map(|next| if is_ahead(schedule, since, now) { now } else { next })
}

/// Returns when a schedule last fired or got its value or, before that, was created.
fn since(held: &Held<Schedule>) -> Timestamp {
    held.state.unwrap_or(held.row.created_at)
}

/// Whether a schedule would stand still until a time that a wrong clock showed.
fn is_ahead(schedule: &Schedule, since: Timestamp, now: Timestamp) -> bool {
    schedule.kind == Some(ScheduleType::Cron) && since.since(now) > AHEAD_MAX_S * 1000
}

/// Marks the firings that an earlier run of this server left open as interrupted.
pub(super) async fn close_interrupted(control: &Control) -> Result<(), Error> {
    let Some(machine) = control.machine() else { return Ok(()) };
    let (server, now) = (machine.name().to_owned(), control.world.now());
    control.store.write(move |tx| firings::close(tx, &server, now, INTERRUPTED)).await?;
    Ok(())
}

/// Fires a schedule if it is due and its sandbox is on this machine.
async fn fire(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let Some(machine) = control.machine().cloned() else { return Ok(()) };
    let (of, schedule, server) = (control.clone(), id.clone(), machine.name().to_owned());
    let Some(shot) = control.store.write(move |tx| begin(&of, tx, &schedule, &server)).await?
    else {
        return Ok(());
    };
    let control = control.clone();
    tokio::spawn(async move {
        let _slot = control.workloads.slots.take(shot.workspace.as_str()).await;
        let outcome = shoot(&control, &*machine, &shot).await;
        if let Err(error) =
            control.store.write(move |tx| firings::end(tx, &shot.firing, &outcome)).await
        {
            tracing::error!(%error, "what came of a schedule could not be written down");
        }
    });
    Ok(())
}

/// The command to start, and where.
struct Shot {
    workspace: WorkspaceId,
    firing: String,
    target: Result<InstanceName, String>,
    input: SandboxScheduleInput,
}

/// Records that the schedule fires now, and moves it to its next time.
fn begin(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    server: &str,
) -> Result<Option<Shot>, Error> {
    let Some((context, held)) = rows::lock_in::<Schedule>(control, tx, id)? else {
        return Ok(None);
    };
    let now = control.world.now();
    let Some(due) = due(&held, now).filter(|due| *due <= now) else { return Ok(None) };
    let Some(sandbox) = Held::<Sandbox>::find(&context, tx, &[], &held.row.parent)? else {
        return Ok(None);
    };
    if sandbox.state.placed.as_ref().is_some_and(|placed| placed.machine != server) {
        return Ok(None);
    }
    let once = held.wish.kind == Some(ScheduleType::At);
    let ahead = is_ahead(&held.wish, since(&held), now);
    if ahead || (!once && now.since(due) > LATE_MAX_S * 1000) {
        rows::put_state(tx, held, Some(now))?;
        return Ok(None);
    }
    let input = engine::opened(&context, &held)?.input.unwrap_or_default();
    let workspace = held.row.workspace.clone();
    let firing = Firing {
        id: format!("exec_{}", control.world.random_text(20)),
        sandbox: sandbox.row.name.clone(),
        schedule: held.row.name.clone(),
        created_at: now,
        timeout_s: input.timeout,
        outcome: None,
    };
    firings::begin(
        tx,
        (&workspace, &sandbox.row.id),
        server,
        &firing,
        held.wish.max_executions.unwrap_or(i64::MAX),
    )?;
    if once {
        engine::remove::<Schedule>(&context, tx, &held.parents(), &held.row.name)?;
    } else {
        rows::put_state(tx, held, Some(now))?;
    }
    Ok(Some(Shot { workspace, firing: firing.id, target: target(&sandbox), input }))
}

/// Returns the instance to call, or why there is none.
fn target(sandbox: &Held<Sandbox>) -> Result<InstanceName, String> {
    match (sandbox.row.status, &sandbox.state.placed) {
        (Some(Status::Deployed), Some(placed)) => {
            Ok(launch::placed_instance(&sandbox.row.id, placed))
        }
        (status, _) => Err(format!("the sandbox is {}", status.map_or("not there", Status::name))),
    }
}

async fn shoot(control: &Control, machine: &dyn Machine, shot: &Shot) -> Outcome {
    let answer = match &shot.target {
        Ok(instance) => machine.start_process(instance, order(&shot.input)).await,
        Err(why) => Err(MachineFault(why.clone())),
    };
    let executed_at = control.world.now();
    match answer {
        Ok(response) => {
            let status_code = i64::from(response.status);
            let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
            let text = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
            let error = (!response.is_success()).then(|| cut(text("error").unwrap_or_default()));
            Outcome { executed_at, process_name: text("name"), status_code, error }
        }
        Err(fault) => {
            Outcome { executed_at, process_name: None, status_code: 0, error: Some(cut(fault.0)) }
        }
    }
}

fn cut(text: String) -> String {
    text.chars().take(ERROR_CHARACTERS_MAX).collect()
}

/// Returns the request to the sandbox API that starts the command.
fn order(input: &SandboxScheduleInput) -> Bytes {
    let mut body = Map::new();
    body.insert("command".into(), json!(input.command));
    body.insert("keepAlive".into(), json!(input.keep_alive));
    body.insert("timeout".into(), json!(input.timeout));
    let more = [("name", json!(input.name)), ("workingDir", json!(input.working_dir))];
    body.extend(
        more.into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.into(), value)),
    );
    if let Some(Sensitive(env)) = &input.env {
        body.insert("env".into(), json!(env));
    }
    Bytes::from(Value::Object(body).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Kind;

    fn schedule(kind: &str, value: &str) -> Schedule {
        serde_json::from_value(json!({ "type": kind, "value": value })).unwrap()
    }

    #[test]
    fn another_value_is_due_no_earlier_than_the_change() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let created_at = time("2026-05-01T07:00:00Z");
        let (fired, now) = (Some(time("2026-05-01T08:00:00Z")), time("2026-05-01T12:00:00Z"));
        let due = |wish: &Schedule, state: Option<Timestamp>| {
            due_since(wish, state.unwrap_or(created_at), state.is_some(), now)
        };
        let (old, new) = (schedule("cron", "0 8 * * *"), schedule("cron", "0 10 * * *"));
        for state in [None, fired] {
            let changed = new.next_state(Some((&old, &state)), now);
            assert_eq!(due(&new, changed), Some(time("2026-05-02T10:00:00Z")));
            // Another input leaves the times as they are.
            assert_eq!(old.next_state(Some((&old, &state)), now), state);
        }
        // What fired before is not the one time.
        let once = schedule("at", "2026-05-01T13:00:00Z");
        let changed = once.next_state(Some((&old, &fired)), now);
        assert_eq!(due(&once, changed), Some(time("2026-05-01T13:00:00Z")));
    }

    #[test]
    fn a_schedule_that_fired_by_a_wrong_clock_goes_on_from_now() {
        let now = Timestamp::from_ms(1_776_300_000_000);
        let often = schedule("cron", "*/5 * * * *");
        let day = AHEAD_MAX_S * 1000;
        assert_eq!(due_since(&often, now.plus_ms(3 * day), true, now), Some(now));
        // Within a day it may have fired by a clock that was set back since, and does not twice.
        let next = due_since(&often, now.plus_ms(day), true, now);
        assert!(next.is_some_and(|next| next > now.plus_ms(day)));
        let once = schedule("at", "2030-01-01T00:00:00Z");
        let due = due_since(&once, now.plus_ms(3 * day), false, now);
        assert!(due.is_some_and(|due| due > now.plus_ms(3 * day)));
    }
}
