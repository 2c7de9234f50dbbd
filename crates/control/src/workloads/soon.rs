//! Reconciling beside everything else.

use super::{deployments, followed};
use crate::control::Control;
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::ids::ResourceId;

/// The database was away, most likely.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Brings a workload into its wished state, beside a limited number of others, until that has
/// worked.
pub(super) fn reconcile(control: &Control, kind: KindName, id: ResourceId) {
    if matches!(kind, KindName::Agent | KindName::Application | KindName::Function) {
        return deployments::soon(control, kind, id);
    }
    let Some(followed) = followed::find(kind) else { return };
    let (control, slots, tasks) =
        (control.clone(), Arc::clone(&control.workloads.slots), control.workloads.tasks.clone());
    tasks.spawn(async move {
        let Ok(_slot) = slots.acquire_owned().await else { return };
        while let Err(error) = followed.reconcile(&control, &id).await {
            tracing::error!(%error, %kind, %id, "it could not be brought into its wished state; it is tried again");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    });
}
