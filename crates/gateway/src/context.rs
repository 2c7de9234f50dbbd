//! The state that deciding on a request needs.

use crate::drives::Drives;
use crate::guard::Guard;
use crate::problem::Problem;
use crate::routes::Routes;
use crate::settings::Settings;
use crate::tunnels::Tunnels;
use crate::wire::Unanswered;
use admission::{Pool, Recheck};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::watch;
use types::World;
use types::edge::WorkloadRoute;

pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) guard: Arc<dyn Guard>,
    /// Weak, because the implementation holds this data plane. Set once the implementation exists.
    pub(crate) drives: OnceLock<Weak<dyn Drives>>,
    pub(crate) tunnels: OnceLock<Weak<dyn Tunnels>>,
    pub(crate) world: World,
    pub(crate) routes: Routes,
    /// Sessions of MCP servers that are bound to a replica, counted by workspace.
    pub(crate) sessions: Pool<String>,
    /// Bytes of kept tool lists, counted by workspace.
    pub(crate) tool_lists: Pool<String>,
    pub(crate) recheck: Recheck,
    /// Notified when all exchanges in progress have to be checked again.
    pub(crate) recheck_due: watch::Sender<()>,
}

impl Context {
    /// Returns what to tell the caller of a request that got no answer. A workload that was deleted
    /// meanwhile does not exist, whatever broke off first.
    pub(crate) fn unanswered(&self, workload: &WorkloadRoute, why: Unanswered) -> Problem {
        match self.routes.workload_by_id(&workload.id) {
            None => Problem::NoWorkload,
            Some(_) => Problem::Unanswered { kind: workload.kind, why },
        }
    }
}
