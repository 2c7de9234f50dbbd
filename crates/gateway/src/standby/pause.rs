//! Standby: what happens to an instance that nobody visits.

use super::agenda::Agenda;
use super::phase::{Delays, Due, Memory, Stage};
use super::{Inner, Instance, Keeper, Phase};
use crate::exchange;
use crate::machine::MachineError;
use http_body_util::BodyExt;
use serde::Deserialize;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of the guest's answer that are read to learn whether it must stay awake.
const HEALTH_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum RestError {
    #[error("there is no such instance")]
    Missing,
    #[error("the instance is in use")]
    Busy,
    #[error("the machine could not pause it")]
    Failed,
}

impl Keeper {
    /// Pauses an instance now, unless somebody visits it. What keeps it awake otherwise is not
    /// asked; a question that is on its way ends before, by its answer or by `health_timeout`.
    pub async fn rest(&self, instance: &str) -> Result<(), RestError> {
        let kept = self.0.find(instance).ok_or(RestError::Missing)?;
        let _resting = kept.rest.lock().await;
        match kept.state.lock().begin_rest_now() {
            Some(Phase::Asleep) => return Ok(()),
            Some(_) => {}
            None => return Err(RestError::Busy),
        }
        // A task of its own: a pause that was begun must end, also when the caller goes away.
        let paused = tokio::spawn(pause(self.clone(), Arc::clone(&kept)));
        paused.await.unwrap_or(false).then_some(()).ok_or(RestError::Failed)
    }
}

impl Inner {
    /// How long after a visit an instance is looked at: its spare connections end before its rest
    /// begins.
    pub(super) fn first_look(&self) -> Duration {
        let life = self.settings.spare_life;
        self.settings.standby_delay.map_or(life, |delay| delay.min(life))
    }

    fn delays(&self) -> Delays {
        Delays { standby: self.settings.standby_delay, reclaim: self.settings.reclaim_delay }
    }
}

pub(super) async fn look_after_all(keeper: Weak<Inner>, agenda: Arc<Agenda>) {
    loop {
        let instance = agenda.next().await;
        let Some(keeper) = keeper.upgrade() else { return };
        look_after(Keeper(keeper), instance).await;
    }
}

/// The instance's entry was just taken off the agenda.
async fn look_after(keeper: Keeper, instance: Arc<Instance>) {
    let now = Instant::now();
    let sweep = instance.spares.sweep(now, keeper.0.settings.spare_life);
    let due = instance.state.lock().due(now, keeper.0.delays(), sweep);
    match due {
        Due::Nothing => return,
        Due::Later(at) => return keeper.0.agenda.add(at, instance),
        Due::Rest { .. } | Due::Reclaim => {}
    }
    // Waits here when many rest at once: those on the agenda can wait, the machine must not be
    // flooded.
    let Ok(place) = Arc::clone(&keeper.0.resting).acquire_owned().await else { return };
    tokio::spawn(async move {
        match due {
            Due::Rest { idle_since } => rest(keeper, instance, idle_since).await,
            _ => reclaim(keeper, instance).await,
        }
        drop(place);
    });
}

async fn rest(keeper: Keeper, instance: Arc<Instance>, idle_since: Instant) {
    let _resting = instance.rest.lock().await;
    // Another pause may have come first: one that is not awake is not asked.
    let idle = instance.state.lock().is_idle_since(idle_since);
    let begun = idle
        && !stays_awake(&keeper, &instance).await
        && instance.state.lock().begin_rest(idle_since);
    if begun {
        pause(keeper, Arc::clone(&instance)).await;
    } else if let Some(delay) = keeper.0.settings.standby_delay {
        keeper.0.list(&instance, Instant::now() + delay);
    }
}

/// The stage is `Pausing`. Says whether it became `Asleep`.
async fn pause(keeper: Keeper, instance: Arc<Instance>) -> bool {
    let Inner { machine, settings, waiting, .. } = &*keeper.0;
    // A connection from before a pause is never used after it: either side may have given it up
    // meanwhile.
    instance.spares.clear();
    let paused = machine.pause(&instance.name).await;
    let now = Instant::now();
    let (stage, again) = match &paused {
        Ok(()) => (Stage::Asleep { since: now, memory: Memory::Held }, settings.reclaim_delay),
        Err(MachineError::Gone) => {
            keeper.forget(&instance.name);
            return false;
        }
        Err(MachineError::Failed(error)) => {
            tracing::error!(instance = instance.name, %error, "pausing failed");
            (Stage::Awake { visits: 0, idle_since: now }, settings.standby_delay)
        }
    };
    instance.state.lock().end(stage);
    waiting.notify(&instance.name);
    if let Some(delay) = again {
        keeper.0.list(&instance, now + delay);
    }
    paused.is_ok()
}

async fn reclaim(keeper: Keeper, instance: Arc<Instance>) {
    if let Err(error) = keeper.0.machine.reclaim(&instance.name).await {
        tracing::warn!(instance = instance.name, %error, "memory of a sleeping instance was not reclaimed");
    }
}

#[derive(Deserialize)]
struct Health {
    #[serde(default, rename = "keepAliveProcesses")]
    keep_alive_processes: u64,
}

/// Whether the guest has processes that must not be paused. A guest that does not answer is
/// believed to, for a while.
async fn stays_awake(keeper: &Keeper, instance: &Instance) -> bool {
    let Inner { machine, settings, .. } = &*keeper.0;
    let asked = exchange::ask_health(&**machine, settings, &instance.name);
    let answer = tokio::time::timeout(settings.health_timeout, async {
        let body =
            http_body_util::Limited::new(asked.await?, HEALTH_BYTES_MAX).collect().await.ok()?;
        serde_json::from_slice::<Health>(&body.to_bytes()).ok()
    });
    let answer = answer.await;
    let mut state = instance.state.lock();
    match answer {
        Ok(health) => {
            state.misses = 0;
            // Whoever has no such count keeps nothing awake.
            health.is_some_and(|health| health.keep_alive_processes > 0)
        }
        Err(_) => {
            state.misses += 1;
            if state.misses > settings.health_misses_max {
                state.misses = 0;
                return false;
            }
            true
        }
    }
}
