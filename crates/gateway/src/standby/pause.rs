//! Pauses instances, by hand or when nobody has visited them for a while.

use super::health;
use super::instance::Instance;
use super::instances::{Inner, Standby};
use super::phase::{Due, Phase, Stage};
use super::timers::Timers;
use crate::machine::MachineError;
use std::sync::{Arc, Weak};
use tokio::time::Instant;

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("there is no such instance")]
    Missing,
    #[error("the instance is in use")]
    Busy,
    #[error("the machine could not pause it")]
    Failed,
}

impl Standby {
    /// Pauses an instance now, unless somebody visits it. The guest is not asked whether it must
    /// stay awake. If it is being asked right now, that question is awaited, for `health_timeout`
    /// at most.
    pub async fn pause(&self, instance: &str) -> Result<(), PauseError> {
        let instance = self.0.find(instance).ok_or(PauseError::Missing)?;
        let _pausing = instance.pause.lock().await;
        match instance.state.lock().begin_pause_now() {
            Some(Phase::Paused) => return Ok(()),
            Some(_) => {}
            None => return Err(PauseError::Busy),
        }
        // In a task of its own: a pause that has begun must be completed even if the caller goes
        // away.
        let paused = tokio::spawn(pause(self.clone(), Arc::clone(&instance)));
        match paused.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(PauseError::Failed),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime is shutting down.
            Err(_) => Err(PauseError::Failed),
        }
    }
}

pub(super) async fn check_when_due(standby: Weak<Inner>, timers: Arc<Timers>) {
    loop {
        let instance = timers.next().await;
        let Some(standby) = standby.upgrade() else { return };
        check(Standby(standby), instance).await;
    }
}

/// Checks an instance whose timer has just fired.
async fn check(standby: Standby, instance: Arc<Instance>) {
    let now = Instant::now();
    let settings = &standby.0.settings;
    let sweep = instance.spares.sweep(now, settings.spare_life);
    let due = instance.state.lock().due(now, settings.standby_delay, sweep);
    let idle_since = match due {
        Due::Nothing => return,
        Due::Later(at) => return standby.0.timers.add(at, instance),
        Due::Pause { idle_since } => idle_since,
    };
    // When many pause at once, the others wait here: the machine must not be flooded. The semaphore
    // is never closed.
    let Ok(permit) = Arc::clone(&standby.0.pausing).acquire_owned().await else { return };
    tokio::spawn(async move {
        pause_if_idle(standby, instance, idle_since).await;
        drop(permit);
    });
}

async fn pause_if_idle(standby: Standby, instance: Arc<Instance>, idle_since: Instant) {
    let _pausing = instance.pause.lock().await;
    // A pause by hand may have come first: only an instance that is awake is asked.
    let idle = instance.state.lock().is_idle_since(idle_since);
    let begun = idle
        && !(instance.has_guest && health::stays_awake(&standby.0, &instance).await)
        && instance.state.lock().begin_pause(idle_since);
    if begun {
        pause(standby, Arc::clone(&instance)).await;
    } else if let Some(delay) = standby.0.settings.standby_delay {
        standby.0.schedule(&instance, Instant::now() + delay);
    }
}

/// Carries out a pause whose stage is `Pausing`. Returns whether it became `Paused`.
async fn pause(standby: Standby, instance: Arc<Instance>) -> bool {
    let Inner { machine, settings, waiting, .. } = &*standby.0;
    // A connection from before a pause is never used after it: either side may have given it up in
    // the meantime.
    instance.spares.clear();
    let paused = machine.pause(&instance.name).await;
    let now = Instant::now();
    let (stage, check_after) = match &paused {
        Ok(()) => (Stage::Paused, None),
        Err(MachineError::Gone) => {
            standby.forget(&instance.name);
            return false;
        }
        Err(MachineError::Failed(error)) => {
            tracing::error!(instance = &*instance.name, %error, "pausing failed");
            (Stage::Awake { visits: 0, idle_since: now }, settings.standby_delay)
        }
    };
    instance.state.lock().end(stage);
    waiting.notify(&instance.name);
    if let Some(delay) = check_after {
        standby.0.schedule(&instance, now + delay);
    }
    paused.is_ok()
}
