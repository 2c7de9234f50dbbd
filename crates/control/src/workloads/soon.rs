//! Reconciliation in the background.

use super::{deployments, followed};
use crate::control::Control;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::ids::ResourceId;

/// Pause after a failure; most likely the database was away.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest pause between attempts to tell an instance its rules; each pause doubles the one
/// before.
const TELL_AFTER_MAX: Duration = Duration::from_secs(30);

/// Brings a workload into its wished state in the background, as one of a limited number at a time,
/// and retries until it succeeds.
pub(super) fn reconcile(control: &Control, kind: KindName, id: ResourceId) {
    if matches!(kind, KindName::Agent | KindName::Application | KindName::Function) {
        return deployments::soon(control, kind, id);
    }
    let Some(followed) = followed::find(kind) else { return };
    let (control, tasks) = (control.clone(), control.workloads.tasks.clone());
    tasks.spawn(async move {
        let (mut slots, mut pause) = (&control.workloads.slots, RETRY_AFTER);
        loop {
            let Ok(slot) = Arc::clone(slots).acquire_owned().await else { return };
            let Err(error) = followed.reconcile(&control, &id).await else { return };
            // Others need not wait for this one.
            drop(slot);
            tracing::error!(%error, %kind, %id, "it could not be brought into its wished state; it is tried again");
            tokio::time::sleep(pause).await;
            if matches!(error, Error::Egress(_)) {
                // A process in the instance may be the cause, and could take up all slots this way.
                (slots, pause) = (&control.workloads.retry_slots, (pause * 2).min(TELL_AFTER_MAX));
            }
        }
    });
}
