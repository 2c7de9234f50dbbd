//! What deciding on a request needs.

use crate::drives::Drives;
use crate::guard::Guard;
use crate::routes::Routes;
use crate::settings::Settings;
use crate::tunnels::Tunnels;
use admission::{Pool, Recheck};
use std::sync::{Arc, OnceLock, Weak};
use tokio::sync::watch;
use types::World;

pub(crate) struct Context {
    pub(crate) settings: Arc<Settings>,
    pub(crate) guard: Arc<dyn Guard>,
    /// Set when whoever it is has been made, which keeps this data plane: so it is not kept by it.
    pub(crate) drives: OnceLock<Weak<dyn Drives>>,
    pub(crate) tunnels: OnceLock<Weak<dyn Tunnels>>,
    pub(crate) world: World,
    pub(crate) routes: Routes,
    /// Sessions of MCP servers that are bound to a replica, by workspace.
    pub(crate) sessions: Pool<String>,
    /// Bytes of lists of tools, by workspace.
    pub(crate) tool_lists: Pool<String>,
    pub(crate) recheck: Recheck,
    /// Notified when all exchanges that go on have to be decided on again.
    pub(crate) recheck_due: watch::Sender<()>,
}
