//! Looks at deployments in the background.

use crate::control::Control;
use crate::workloads::followed::{self, Rows};
use crate::workloads::rows;
use types::KindName;
use types::ids::ResourceId;

/// Has a deployment looked at, unless somebody is about to do so. Nothing slow may keep a look
/// waiting, because a request may be waiting for it.
pub(super) fn look(control: &Control, kind: KindName, id: ResourceId) {
    let Some(followed) = followed::find(kind) else { return };
    if !control.workloads.deployments.queue(&id) {
        return;
    }
    let control = control.clone();
    tokio::spawn(async move { look_until_done(&control, followed, &id).await });
}

async fn look_until_done(control: &Control, followed: &'static dyn Rows, id: &ResourceId) {
    let all = &control.workloads.deployments;
    loop {
        let looked = {
            let Ok(_look) = all.looks.acquire().await else { return };
            followed.reconcile(control, id).await
        };
        let Err(error) = looked else { return };
        let kind = followed.kind();
        tracing::error!(%error, %kind, %id, "it could not be brought into its wished state; it is tried again");
        // Whoever asks for a look meanwhile leaves it to this task, and others get their looks.
        if !all.queue(id) {
            return;
        }
        tokio::time::sleep(rows::RETRY_AFTER).await;
    }
}
