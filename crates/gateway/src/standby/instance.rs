//! One instance as standby knows it.

use super::phase::{Phase, Stage, State};
use crate::wire::Spares;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::instance::{InstanceName, RunsFor};

pub(crate) struct Instance {
    pub(super) name: Arc<str>,
    /// When standby first heard of it.
    pub(super) since: Instant,
    /// Whether a guest listens in it, which knows what must stay awake. A replica runs only its
    /// program.
    pub(super) has_guest: bool,
    pub(super) state: Mutex<State>,
    /// A connection that is not in here belongs to a visit, or to the health check, which holds
    /// `pause`. So a pause finds all connections in here.
    pub(super) spares: Spares,
    /// Held from the health check until the pause is over, and while any pause begins.
    pub(super) pause: tokio::sync::Mutex<()>,
}

/// The current state of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub phase: Phase,
    pub visits: usize,
    /// Time since the last visit ended.
    pub idle: Option<Duration>,
}

fn is_replica(name: &str) -> bool {
    let name = InstanceName::new(name).ok();
    matches!(name.and_then(|name| name.runs_for()), Some(RunsFor::Replica(_)))
}

impl Instance {
    pub(super) fn new(name: &str, now: Instant) -> Self {
        Self {
            name: name.into(),
            since: now,
            has_guest: !is_replica(name),
            state: Mutex::new(State::new(Stage::Starting)),
            spares: Spares::default(),
            pause: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn look(&self) -> Look {
        let state = self.state.lock();
        let (visits, idle) = match state.stage {
            Stage::Awake { visits: 0, idle_since } => (0, Some(idle_since.elapsed())),
            Stage::Awake { visits, .. } => (visits, None),
            _ => (0, None),
        };
        Look { phase: state.phase(), visits, idle }
    }

    /// Returns how long nobody has visited it, asleep or awake. `None` means somebody is visiting
    /// it.
    pub(super) fn unvisited(&self) -> Option<Duration> {
        let state = self.state.lock();
        let is_visited = matches!(state.stage, Stage::Awake { visits: 1.., .. });
        (!is_visited).then(|| state.left.unwrap_or(self.since).elapsed())
    }
}
