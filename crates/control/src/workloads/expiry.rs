//! What happens by the passing of time: sandboxes and previews expire, records of ended sandboxes
//! are removed, schedules and cron triggers fire.

use super::alarm::NAP_MAX;
use super::{followed, schedules};
use crate::control::Control;
use crate::error::Error;
use types::KindName;
use types::ids::ResourceId;

/// Pause before a failed row is tried again.
const RETRY_AFTER_S: i64 = 5;

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

async fn act(control: &Control, id: &ResourceId, kind: KindName) -> Result<(), Error> {
    match followed::find(kind) {
        Some(followed) => followed.act_when_due(control, id).await,
        None => Ok(()),
    }
}
