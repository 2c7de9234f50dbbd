//! What happens by the passing of time: sandboxes and previews expire, records of ended sandboxes
//! are removed, schedules and cron triggers fire.

use super::alarm::NAP_MAX;
use super::looks::Looks;
use super::{followed, schedules, soon};
use crate::control::Control;
use crate::error::Error;
use admission::Turns;
use std::sync::Arc;
use types::KindName;
use types::ids::ResourceId;

/// Pause before a failed row is tried again.
const RETRY_AFTER_S: i64 = 5;
/// Most rows that are acted on at the same time, of all workspaces and of one. Each takes a short
/// transaction, and the database has room for few of them at once.
const AT_ONCE: usize = 16;
pub(super) const WORKSPACE_AT_ONCE: usize = 2;

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
    loop {
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
