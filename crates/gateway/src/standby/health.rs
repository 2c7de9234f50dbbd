//! Asks the guest whether something in the instance must not be paused.

use super::instance::Instance;
use super::instances::Inner;
use crate::machine::Machine;
use crate::settings::Settings;
use crate::wire::{RequestBody, connect};
use http::header::{HOST, HeaderValue};
use http::{Request, Uri};
use serde::Deserialize;
use types::instance::GUEST_PORT;

/// Largest answer of the guest that is read, in bytes.
const HEALTH_BYTES_MAX: usize = 64 << 10;
/// How many times in a row the guest may fail to answer before the instance is paused anyway.
const MISSES_MAX: u32 = 3;

#[derive(Deserialize)]
struct Health {
    #[serde(default, rename = "keepAliveProcesses")]
    keep_alive_processes: u64,
}

/// Returns whether the guest has processes that must not be paused. A guest that does not answer
/// counts as having some, up to [`MISSES_MAX`] times in a row.
pub(super) async fn stays_awake(standby: &Inner, instance: &Instance) -> bool {
    let Inner { machine, settings, .. } = standby;
    let asked = ask(&**machine, settings, &instance.name);
    let answer = tokio::time::timeout(settings.health_timeout, asked).await;
    let mut state = instance.state.lock();
    match answer {
        Ok(health) => {
            state.misses = 0;
            // A guest without such a count keeps nothing awake.
            health.is_some_and(|health| health.keep_alive_processes > 0)
        }
        Err(_) => {
            state.misses += 1;
            if state.misses > MISSES_MAX {
                state.misses = 0;
                return false;
            }
            true
        }
    }
}

/// Asks without a visit, because the question itself must not keep the instance awake.
async fn ask(machine: &dyn Machine, settings: &Settings, instance: &str) -> Option<Health> {
    let mut wire = connect(machine, settings, instance, GUEST_PORT).await.ok()?;
    let mut request = Request::new(RequestBody::empty());
    *request.uri_mut() = Uri::from_static("/health");
    request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
    let mut incoming = wire.send(request, None, settings.answer_idle).await.ok()?.into_body();
    let mut text = Vec::new();
    while let Some(frame) = wire.next_frame(&mut incoming).await {
        if let Ok(data) = frame.ok()?.into_data() {
            text.extend_from_slice(&data);
        }
        if text.len() > HEALTH_BYTES_MAX {
            return None;
        }
    }
    serde_json::from_slice(&text).ok()
}
