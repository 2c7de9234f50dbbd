//! Tunnels for the data plane, by direct calls to the control plane in this process.

use control::{Control, tunnels};
use futures_util::future::BoxFuture;
use gateway::Tunnels;
use types::ids::ResourceId;
use types::tunnel::TunnelRefusal;

pub(super) struct LocalTunnels(pub(super) Control);

impl Tunnels for LocalTunnels {
    fn set<'a>(
        &'a self,
        sandbox: &'a ResourceId,
        config: String,
    ) -> BoxFuture<'a, Result<(), TunnelRefusal>> {
        Box::pin(tunnels::set(&self.0, sandbox, config))
    }

    fn remove<'a>(&'a self, sandbox: &'a ResourceId) -> BoxFuture<'a, Result<(), TunnelRefusal>> {
        Box::pin(tunnels::remove(&self.0, sandbox))
    }
}
