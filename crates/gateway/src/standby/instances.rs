//! Who is awake: holds requests while an instance starts, sleeps or wakes, and lets it rest when
//! nobody is there.

mod agenda;
mod call;
mod phase;
mod rest;

pub use call::CallError;
pub use phase::Phase;
pub use rest::RestError;

use crate::machine::{Machine, MachineError};
use crate::settings::Settings;
use crate::spares::Spares;
use crate::wait_queue::{Limit, WaitError, WaitQueues};
use agenda::Agenda;
use parking_lot::{Mutex, RwLock};
use phase::{Knock, Memory, Stage, State};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Keeps all instances of a machine. Cheap to clone.
#[derive(Clone)]
pub struct Keeper(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) settings: Arc<Settings>,
    pub(crate) machine: Arc<dyn Machine>,
    instances: RwLock<HashMap<String, Arc<Instance>>>,
    waiting: WaitQueues,
    agenda: Arc<Agenda>,
    resting: Arc<Semaphore>,
    /// Looks after those whose time has come. Holds no keeper while it waits, so that the last one
    /// can go.
    _timer: AbortOnDropHandle<()>,
}

pub(crate) struct Instance {
    name: String,
    /// When this keeper was told of it first.
    since: Instant,
    state: Mutex<State>,
    /// Whoever holds a connection that is not in here holds a visit, or asks how the guest is and
    /// holds `rest`: a pause meets all of them in here.
    spares: Spares,
    /// Held from the question whether it may rest to the end of the pause, and to begin any pause.
    rest: tokio::sync::Mutex<()>,
}

/// How an instance is found when the keeper is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Starting,
    Awake,
    Asleep,
}

/// What is known of an instance now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub phase: Phase,
    pub visits: usize,
    /// Since the last visit ended.
    pub idle: Option<Duration>,
}

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
}

impl Keeper {
    pub(crate) fn new(settings: Arc<Settings>, machine: Arc<dyn Machine>) -> Self {
        let resting =
            Arc::new(Semaphore::new(settings.standby_parallel.clamp(1, Semaphore::MAX_PERMITS)));
        Self(Arc::new_cyclic(|inner| {
            let agenda = Arc::new(Agenda::default());
            let timer = tokio::spawn(rest::look_after_all(inner.clone(), Arc::clone(&agenda)));
            Inner {
                settings,
                machine,
                instances: RwLock::default(),
                waiting: WaitQueues::default(),
                agenda,
                resting,
                _timer: AbortOnDropHandle::new(timer),
            }
        }))
    }

    /// Tells of an instance. Only one that is unknown or still starting is changed by it.
    pub fn start(&self, instance: &str, found: Found) {
        let now = Instant::now();
        let stage = || match found {
            Found::Starting => Stage::Starting,
            Found::Awake => Stage::Awake { visits: 0, idle_since: now },
            Found::Asleep => Stage::Asleep { since: now, memory: Memory::Held },
        };
        let kept = {
            let mut instances = self.0.instances.write();
            let kept = instances.entry(instance.to_owned()).or_insert_with(|| {
                let state = Mutex::new(State::new(Stage::Starting));
                let (name, rest) = (instance.to_owned(), tokio::sync::Mutex::default());
                Arc::new(Instance { name, since: now, state, spares: Spares::default(), rest })
            });
            Arc::clone(kept)
        };
        let mut state = kept.state.lock();
        if let Stage::Starting = state.stage {
            state.stage = stage();
        }
        drop(state);
        self.0.list(&kept, now);
        self.0.waiting.notify(instance);
    }

    /// The instance is no more: who waits for it learns so, who visits it is left to its
    /// connection.
    pub fn forget(&self, instance: &str) {
        let kept = self.0.instances.write().remove(instance);
        if let Some(kept) = kept {
            kept.state.lock().stage = Stage::Gone;
            kept.spares.clear();
            self.0.waiting.notify(instance);
        }
    }

    pub fn look(&self, instance: &str) -> Option<Look> {
        let kept = self.0.find(instance)?;
        let state = kept.state.lock();
        let (visits, idle) = match state.stage {
            Stage::Awake { visits: 0, idle_since } => (0, Some(idle_since.elapsed())),
            Stage::Awake { visits, .. } => (visits, None),
            _ => (0, None),
        };
        Some(Look { phase: state.phase(), visits, idle })
    }

    /// How many requests wait for an instance.
    pub fn waiting(&self, instance: &str) -> usize {
        self.0.waiting.waiting(instance)
    }

    /// Waits until the instance is awake, and keeps it so until the visit is dropped.
    pub async fn enter(&self, instance: &str) -> Result<Visit, EnterError> {
        self.enter_until(instance, Instant::now() + self.0.settings.wait_timeout).await
    }

    pub(crate) async fn enter_until(
        &self,
        instance: &str,
        until: Instant,
    ) -> Result<Visit, EnterError> {
        let mut met = None;
        if let Some(answer) = self.ask(instance, &mut met) {
            return answer;
        }
        let limit = Limit { waiting: self.0.settings.waiting_max, until };
        match self.0.waiting.wait(instance, limit, || self.ask(instance, &mut met)).await {
            Ok(answer) => answer,
            Err(WaitError::Full) => Err(EnterError::Crowded),
            Err(WaitError::TimedOut) => Err(EnterError::TimedOut),
        }
    }

    /// `met` is how often waking had failed when the instance was first seen. One never seen may
    /// still be announced.
    fn ask(&self, name: &str, met: &mut Option<u32>) -> Option<Result<Visit, EnterError>> {
        let Some(instance) = self.0.find(name) else { return met.map(|_| Err(EnterError::Gone)) };
        let mut state = instance.state.lock();
        if state.failures > *met.get_or_insert(state.failures) {
            return Some(Err(EnterError::NotWoken));
        }
        let knock = state.knock();
        drop(state);
        match knock {
            Knock::Enter => Some(Ok(Visit { keeper: self.clone(), instance })),
            Knock::Gone => Some(Err(EnterError::Gone)),
            Knock::Wait => None,
            Knock::Wake => {
                // A task of its own: the request that came first may be cut off, and others wait
                // for the same wake.
                tokio::spawn(wake(self.clone(), instance));
                None
            }
        }
    }
}

impl Inner {
    fn find(&self, name: &str) -> Option<Arc<Instance>> {
        self.instances.read().get(name).cloned()
    }

    /// Puts the instance on the agenda, once.
    fn list(&self, instance: &Arc<Instance>, at: Instant) {
        if !std::mem::replace(&mut instance.state.lock().listed, true) {
            self.agenda.add(at, Arc::clone(instance));
        }
    }
}

async fn wake(keeper: Keeper, instance: Arc<Instance>) {
    let began = Instant::now();
    let Inner { machine, settings, waiting, .. } = &*keeper.0;
    let mut attempts_left = settings.wake_attempts;
    let woken = loop {
        attempts_left = attempts_left.saturating_sub(1);
        match machine.resume(&instance.name).await {
            Err(MachineError::Failed(error)) if attempts_left > 0 => {
                tracing::warn!(instance = instance.name, %error, "waking failed and is tried again");
                tokio::time::sleep(settings.wake_pause).await;
            }
            end => break end,
        }
    };
    let now = Instant::now();
    match woken {
        Ok(()) => {
            instance.state.lock().end(Stage::Awake { visits: 0, idle_since: now });
            metrics::histogram!("holm_gateway_wake_seconds").record((now - began).as_secs_f64());
            waiting.notify(&instance.name);
            keeper.0.list(&instance, now);
        }
        Err(MachineError::Gone) => keeper.forget(&instance.name),
        Err(MachineError::Failed(error)) => {
            tracing::error!(instance = instance.name, %error, "waking failed");
            let mut state = instance.state.lock();
            state.failures += 1;
            state.end(Stage::Asleep { since: now, memory: Memory::Held });
            drop(state);
            waiting.notify(&instance.name);
        }
    }
}

/// Holds an instance awake.
pub struct Visit {
    keeper: Keeper,
    instance: Arc<Instance>,
}

impl Visit {
    pub fn instance(&self) -> &str {
        &self.instance.name
    }

    pub(crate) fn since(&self) -> Instant {
        self.instance.since
    }

    pub(crate) fn spares(&self) -> &Spares {
        &self.instance.spares
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.keeper.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.instance.state.lock();
        let list = state.leave(now) && !std::mem::replace(&mut state.listed, true);
        drop(state);
        if list {
            self.keeper.0.agenda.add(now + self.keeper.0.first_look(), Arc::clone(&self.instance));
        }
    }
}
