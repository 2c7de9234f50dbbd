//! Entering an instance: waiting until it is awake, waking it, and keeping it awake.

use super::instance::Instance;
use super::instances::{Inner, Standby};
use super::phase::{Entry, Stage};
use crate::machine::MachineError;
use crate::wait_queue::{Limit, WaitError};
use crate::wire::Spares;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Attempts to wake an instance before waiting requests get an error, and the pause between two.
const WAKE_ATTEMPTS: u32 = 3;
const WAKE_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnterError {
    #[error("the instance is no more")]
    Gone,
    #[error("too many requests wait for the instance")]
    Crowded,
    #[error("the instance was not ready in time")]
    TimedOut,
    #[error("the instance could not be woken")]
    NotWoken,
    #[error("this server is stopping, and nothing was ready to answer yet")]
    Stopping,
}

impl From<WaitError> for EnterError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Full => Self::Crowded,
            WaitError::TimedOut => Self::TimedOut,
            WaitError::Closed => Self::Stopping,
        }
    }
}

/// Keeps an instance awake until it is dropped.
pub struct Visit {
    standby: Standby,
    instance: Arc<Instance>,
}

impl Visit {
    pub fn instance(&self) -> &Arc<str> {
        &self.instance.name
    }

    pub(crate) fn since(&self) -> Instant {
        self.instance.since
    }

    pub(crate) fn spares(&self) -> &Spares {
        &self.instance.spares
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.standby.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.instance.state.lock();
        let schedule = state.leave(now) && !std::mem::replace(&mut state.scheduled, true);
        drop(state);
        if schedule {
            let at = now + self.standby.0.first_check();
            self.standby.0.timers.add(at, Arc::clone(&self.instance));
        }
    }
}

impl Inner {
    /// Returns how long after a visit an instance is first checked: when its spare connections
    /// expire, or when it may pause if that is sooner.
    fn first_check(&self) -> Duration {
        let life = self.settings.spare_life;
        self.settings.standby_delay.map_or(life, |delay| delay.min(life))
    }
}

impl Standby {
    /// Waits until the instance is awake, and keeps it awake until the visit is dropped.
    pub async fn enter(&self, instance: &str) -> Result<Visit, EnterError> {
        self.enter_until(instance, Instant::now() + self.0.settings.wait_timeout).await
    }

    pub(crate) async fn enter_until(
        &self,
        instance: &str,
        until: Instant,
    ) -> Result<Visit, EnterError> {
        self.enter_after(instance, until, None).await
    }

    /// Enters like `enter_until`, but takes an instance that standby does not know to be gone,
    /// because it will never be announced again.
    pub async fn enter_known(&self, instance: &str, until: Instant) -> Result<Visit, EnterError> {
        let known = self.0.find(instance).ok_or(EnterError::Gone)?;
        let failures = known.state.lock().failures;
        drop(known);
        self.enter_after(instance, until, Some(failures)).await
    }

    async fn enter_after(
        &self,
        instance: &str,
        until: Instant,
        mut failures: Option<u32>,
    ) -> Result<Visit, EnterError> {
        if let Some(answer) = self.try_enter(instance, &mut failures) {
            return answer;
        }
        // Waiting is rare and its future is large: boxed, so that entering stays small.
        Box::pin(self.wait_to_enter(instance, until, failures)).await
    }

    async fn wait_to_enter(
        &self,
        instance: &str,
        until: Instant,
        mut failures: Option<u32>,
    ) -> Result<Visit, EnterError> {
        let limit = Limit { waiting: self.0.settings.waiting_max, until };
        self.0.waiting.wait(instance, limit, || self.try_enter(instance, &mut failures)).await?
    }

    /// Tries to enter. `None` means not yet. `failures` is how often waking had failed when this
    /// request first saw the instance; if it has not seen the instance, it may still be announced.
    fn try_enter(
        &self,
        name: &str,
        failures: &mut Option<u32>,
    ) -> Option<Result<Visit, EnterError>> {
        let Some(instance) = self.0.find(name) else {
            return failures.map(|_| Err(EnterError::Gone));
        };
        let mut state = instance.state.lock();
        if state.failures > *failures.get_or_insert(state.failures) {
            return Some(Err(EnterError::NotWoken));
        }
        let entry = state.enter();
        drop(state);
        match entry {
            Entry::Entered => Some(Ok(Visit { standby: self.clone(), instance })),
            Entry::Gone => Some(Err(EnterError::Gone)),
            Entry::Wait => None,
            Entry::Wake => {
                // In a task of its own: this request may be cut off while others wait for the same
                // wake.
                tokio::spawn(wake(self.clone(), instance));
                None
            }
        }
    }
}

async fn wake(standby: Standby, instance: Arc<Instance>) {
    let began = Instant::now();
    let woken = resume(&standby.0, &instance).await;
    let Inner { waiting, .. } = &*standby.0;
    let now = Instant::now();
    match woken {
        Ok(()) => {
            instance.state.lock().end(Stage::Awake { visits: 0, idle_since: now });
            metrics::histogram!("holm_gateway_wake_seconds").record((now - began).as_secs_f64());
            waiting.notify(&instance.name);
            standby.0.schedule(&instance, now);
        }
        Err(MachineError::Gone) => standby.forget(&instance.name),
        Err(MachineError::Failed(error)) => {
            tracing::error!(instance = &*instance.name, %error, "waking failed");
            let mut state = instance.state.lock();
            state.failures += 1;
            state.end(Stage::Paused);
            drop(state);
            waiting.notify(&instance.name);
        }
    }
}

/// Resumes the instance, and tries again after a failure.
async fn resume(standby: &Inner, instance: &Instance) -> Result<(), MachineError> {
    let mut attempt = 1;
    loop {
        match standby.machine.resume(&instance.name).await {
            Err(MachineError::Failed(error)) if attempt < WAKE_ATTEMPTS => {
                attempt += 1;
                tracing::warn!(
                    instance = &*instance.name,
                    %error,
                    "waking failed and is tried again"
                );
                tokio::time::sleep(WAKE_PAUSE).await;
            }
            end => return end,
        }
    }
}
