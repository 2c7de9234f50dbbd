//! Keeps one state per instance, holds requests while an instance starts, pauses or wakes, and
//! pauses it when nobody uses it.
//!
//! ```text
//! phase      the pure state machine
//! instance   one instance: its state and its spare connections
//! timers     which instance is to be checked next
//! instances  all instances of the machine
//! visit      entering, which waits and wakes; a visit keeps its instance awake
//! health     asks the guest whether it must stay awake
//! pause      by hand and after `standby_delay`
//! ```

mod health;
mod instance;
mod instances;
mod pause;
mod phase;
mod timers;
mod visit;

pub use instance::Look;
pub use instances::{Initial, Standby};
pub use pause::PauseError;
pub use phase::Phase;
pub use visit::{EnterError, Visit};

use crate::machine::Machine;
use crate::settings::Settings;
use crate::wait_queue::WaitQueues;
use instances::Inner;
use parking_lot::RwLock;
use std::sync::Arc;
use timers::Timers;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// How many instances are asked and paused at the same time.
const PAUSING_MAX: usize = 32;

impl Standby {
    /// Must be called within a runtime: it spawns a task that checks on the instances.
    pub(crate) fn new(settings: Arc<Settings>, machine: Arc<dyn Machine>) -> Self {
        Self(Arc::new_cyclic(|inner| {
            let timers = Arc::new(Timers::default());
            let checks = tokio::spawn(pause::check_when_due(inner.clone(), Arc::clone(&timers)));
            Inner {
                settings,
                machine,
                instances: RwLock::default(),
                waiting: WaitQueues::default(),
                timers,
                pausing: Arc::new(Semaphore::new(PAUSING_MAX)),
                _checks: AbortOnDropHandle::new(checks),
            }
        }))
    }
}
