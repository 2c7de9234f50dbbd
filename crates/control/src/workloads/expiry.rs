//! What happens by the passing of time: sandboxes and previews expire, records of ended sandboxes
//! are removed, schedules and cron triggers fire.

use super::alarm::NAP_MAX;
use super::looks::Looks;
use super::{followed, schedules, soon};
use crate::control::Control;
use crate::error::Error;
use admission::Turns;
use std::sync::Arc;
use types::ids::ResourceId;
use types::{KindName, World};

/// Pause before a failed row is tried again.
const RETRY_AFTER_S: i64 = 5;
/// Most rows that are acted on at the same time, of all workspaces and of one. Each takes a short
/// transaction, and the database has room for few of them at once.
const AT_ONCE: usize = 16;
pub(super) const WORKSPACE_AT_ONCE: usize = 2;

/// A calendar that goes back by less is only being adjusted.
const SET_BACK_MIN_MS: i64 = 1_000;

/// Rows that are acted on, or about to be.
pub(super) struct Acts {
    /// Others than those of reconciliation, which may take long.
    pub(super) slots: Turns,
    pending: Looks,
}

impl Default for Acts {
    fn default() -> Self {
        Self { slots: Turns::new(AT_ONCE, WORKSPACE_AT_ONCE), pending: Looks::default() }
    }
}

pub(super) async fn run(control: Control) {
    while let Err(error) = schedules::close_interrupted(&control).await {
        tracing::error!(%error, "what was being fired could not be closed; it is tried again");
        tokio::time::sleep(NAP_MAX).await;
    }
    follow(control, Arc::default()).await;
}

/// Acts on each row when it is due. No workspace waits for what another one has to do.
pub(super) async fn follow(control: Control, acts: Arc<Acts>) {
    let alarm = &control.workloads.alarm;
    let mut calendar = Calendar::new(&control.world);
    loop {
        if calendar.was_set_back(&control.world) {
            tracing::warn!("the machine's clock was set back: when rows are due is read again");
            control.servers.changed.notify_one();
        }
        match alarm.take(control.world.now()) {
            Ok((id, kind)) => {
                if acts.pending.ask(&id) {
                    let (of, acts) = (control.clone(), Arc::clone(&acts));
                    let turn = async move { act_in_turn(&of, &acts, &id, kind).await };
                    control.workloads.tasks.spawn(turn);
                }
            }
            Err(nap) => {
                let _ = tokio::time::timeout(nap, alarm.changed.notified()).await;
            }
        }
    }
}

/// Notices that the calendar was set back. Whatever waits until a pause is over would wait for as
/// much longer.
struct Calendar {
    /// How far the calendar is ahead of the clock that nobody can set.
    ahead_ms: i64,
}

impl Calendar {
    fn new(world: &World) -> Self {
        Self { ahead_ms: world.now().ms() - world.uptime_ms() }
    }

    fn was_set_back(&mut self, world: &World) -> bool {
        let before = std::mem::replace(self, Self::new(world));
        before.ahead_ms - self.ahead_ms > SET_BACK_MIN_MS
    }
}

async fn act_in_turn(control: &Control, acts: &Acts, id: &ResourceId, kind: KindName) {
    let mut turn = acts.pending.turn(id);
    let workspace = soon::workspace_of(control, id).await;
    loop {
        let _slot = soon::slot_of(workspace.as_ref(), &acts.slots).await;
        turn.begin();
        if let Err(error) = act(control, id, kind).await {
            tracing::error!(%error, %id, "what was due could not be done; it is tried again");
            let later = control.world.now().plus_s(RETRY_AFTER_S);
            control.workloads.alarm.set(id.clone(), kind, Some(later));
        }
        if turn.end() {
            return;
        }
    }
}

async fn act(control: &Control, id: &ResourceId, kind: KindName) -> Result<(), Error> {
    match followed::find(kind) {
        Some(followed) => followed.act_when_due(control, id).await,
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timestamp;

    #[test]
    fn a_calendar_that_is_set_back_is_noticed_once() {
        let world = |now_ms: i64, uptime_ms: i64| {
            World::new(move || Timestamp::from_ms(now_ms), |bytes| bytes.fill(0))
                .with_uptime(move || uptime_ms)
        };
        let mut calendar = Calendar::new(&world(50_000, 0));
        assert!(!calendar.was_set_back(&world(55_000, 5_000)));
        assert!(!calendar.was_set_back(&world(59_900, 10_000)), "it is adjusted");
        assert!(!calendar.was_set_back(&world(7_265_000, 15_000)), "it is set forward");
        assert!(calendar.was_set_back(&world(70_000, 20_000)));
        assert!(!calendar.was_set_back(&world(75_000, 25_000)));
    }
}
