//! Reconciliation in the background.

use super::followed::{self, Rows};
use super::rows;
use crate::control::Control;
use crate::error::Error;
use admission::{Turn, Turns};
use std::time::Duration;
use store::resources;
use types::KindName;
use types::ids::{ResourceId, WorkspaceId};

/// The longest pause between attempts to tell an instance its rules; each pause doubles the one
/// before.
const TELL_AFTER_MAX: Duration = Duration::from_secs(30);

/// Brings a workload into its wished state in the background, as one of a limited number at a time,
/// and retries until it succeeds.
pub(crate) fn reconcile(control: &Control, kind: KindName, id: ResourceId) {
    reconcile_in(control, None, kind, id);
}

/// Does the same for a row of a workspace that the caller knows.
pub(super) fn reconcile_in(
    control: &Control,
    workspace: Option<WorkspaceId>,
    kind: KindName,
    id: ResourceId,
) {
    let Some(followed) = followed::find(kind) else { return };
    if let Some(reconcile) = followed.without_slot() {
        return reconcile(control, id);
    }
    if !control.workloads.pending.ask(&id) {
        return;
    }
    let (control, tasks) = (control.clone(), control.workloads.tasks.clone());
    tasks.spawn(async move { look_until_done(&control, followed, workspace, &id).await });
}

async fn look_until_done(
    control: &Control,
    followed: &'static dyn Rows,
    workspace: Option<WorkspaceId>,
    id: &ResourceId,
) {
    let mut turn = control.workloads.pending.turn(id);
    let workspace = match workspace {
        Some(workspace) => Some(workspace),
        None => workspace_of(control, id).await,
    };
    let (mut slots, mut pause) = (&control.workloads.slots, rows::RETRY_AFTER);
    loop {
        // Somebody may work on it for long. Whoever waits for that needs no slot meanwhile.
        drop(control.workloads.lock(id).await);
        let slot = slot_of(workspace.as_ref(), slots).await;
        turn.begin();
        let looked = followed.reconcile(control, id).await;
        // Others need not wait for this one.
        drop(slot);
        let Err(error) = looked else {
            if turn.end() {
                return;
            }
            (slots, pause) = (&control.workloads.slots, rows::RETRY_AFTER);
            continue;
        };
        let kind = followed.kind();
        tracing::error!(%error, %kind, %id, "it could not be brought into its wished state; it is tried again");
        tokio::time::sleep(rows::RETRY_AFTER).await;
        if matches!(error, Error::Egress(_)) {
            // What was changed meanwhile may be what helps.
            let _ = tokio::time::timeout(pause - rows::RETRY_AFTER, turn.news.notified()).await;
            // A process in the instance may be the cause, and could take up all slots this way.
            (slots, pause) = (&control.workloads.retry_slots, (pause * 2).min(TELL_AFTER_MAX));
        }
    }
}

/// Returns the workspace of a row, as far as it can be found out: the work itself says what is
/// wrong.
pub(super) async fn workspace_of(control: &Control, id: &ResourceId) -> Option<WorkspaceId> {
    let id = id.clone();
    let row = control.store.read(move |tx| resources::find_by_id(tx, &id)).await;
    Some(row.ok()??.workspace)
}

/// Waits for a slot of a workspace, which is unknown for rows that are gone.
pub(super) async fn slot_of(workspace: Option<&WorkspaceId>, slots: &Turns) -> Turn {
    match workspace {
        Some(workspace) => slots.take(workspace.as_str()).await,
        None => slots.take_unowned().await,
    }
}
