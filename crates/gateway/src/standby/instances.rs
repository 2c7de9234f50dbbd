//! All instances of a machine.

use super::instance::{Instance, Look};
use super::phase::Stage;
use super::timers::Timers;
use crate::machine::Machine;
use crate::settings::Settings;
use crate::wait_queue::WaitQueues;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use types::edge::Load;

/// Keeps the state of all instances of a machine. Cheap to clone.
#[derive(Clone)]
pub struct Standby(pub(super) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) settings: Arc<Settings>,
    pub(crate) machine: Arc<dyn Machine>,
    pub(super) instances: RwLock<HashMap<Arc<str>, Arc<Instance>>>,
    pub(super) waiting: WaitQueues,
    pub(super) timers: Arc<Timers>,
    /// Has a permit for each instance that may be asked and paused at the same time.
    pub(super) pausing: Arc<Semaphore>,
    /// Checks the instances that are due. It holds no `Standby` while it waits, so that it ends
    /// when the last one is dropped.
    pub(super) _checks: AbortOnDropHandle<()>,
}

/// The state of an instance when standby is told about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Initial {
    Starting,
    Awake,
    Paused,
}

impl Standby {
    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Begins to track an instance. The state of a known instance changes only if it was still
    /// starting.
    pub fn track(&self, instance: &str, initial: Initial) {
        let now = Instant::now();
        let tracked = self.0.find_or_insert(instance, now);
        let mut state = tracked.state.lock();
        if let Stage::Starting = state.stage {
            state.stage = match initial {
                Initial::Starting => Stage::Starting,
                Initial::Awake => Stage::Awake { visits: 0, idle_since: now },
                Initial::Paused => Stage::Paused,
            };
        }
        drop(state);
        self.0.schedule(&tracked, now);
        self.0.waiting.notify(instance);
    }

    /// Forgets an instance that is gone. Its waiters get an error; its visits go on until their
    /// connections end.
    pub fn forget(&self, instance: &str) {
        let removed = self.0.instances.write().remove(instance);
        if let Some(removed) = removed {
            removed.state.lock().stage = Stage::Gone;
            removed.spares.clear();
            self.0.waiting.notify(instance);
        }
    }

    pub fn look(&self, instance: &str) -> Option<Look> {
        self.0.find(instance).map(|found| found.look())
    }

    /// Returns how many requests an instance has and how long it has been idle.
    pub(crate) fn load(&self, instance: &str) -> Option<Load> {
        let found = self.0.find(instance)?;
        let (look, unvisited) = (found.look(), found.unvisited());
        let requests = look.visits + self.waiting(instance);
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        Some(Load { requests, idle: unvisited.filter(|_| requests == 0) })
    }

    /// Returns how many requests wait for an instance.
    pub fn waiting(&self, instance: &str) -> usize {
        self.0.waiting.waiting(instance)
    }
}

impl Inner {
    pub(super) fn find(&self, name: &str) -> Option<Arc<Instance>> {
        self.instances.read().get(name).cloned()
    }

    fn find_or_insert(&self, name: &str, now: Instant) -> Arc<Instance> {
        let mut instances = self.instances.write();
        if let Some(known) = instances.get(name) {
            return Arc::clone(known);
        }
        let new = Arc::new(Instance::new(name, now));
        instances.insert(Arc::clone(&new.name), Arc::clone(&new));
        new
    }

    /// Sets the timer of the instance, unless it is set already.
    pub(super) fn schedule(&self, instance: &Arc<Instance>, at: Instant) {
        if !std::mem::replace(&mut instance.state.lock().scheduled, true) {
            self.timers.add(at, Arc::clone(instance));
        }
    }
}
