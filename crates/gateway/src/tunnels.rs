//! What brings up tunnels for the data plane.

use futures_util::future::BoxFuture;
use types::ids::ResourceId;
use types::tunnel::TunnelRefusal;

/// Brings up tunnels for sandboxes. The sandbox is awake, and stays awake, while something is
/// changed.
pub trait Tunnels: Send + Sync + 'static {
    fn set<'a>(
        &'a self,
        sandbox: &'a ResourceId,
        config: String,
    ) -> BoxFuture<'a, Result<(), TunnelRefusal>>;

    fn remove<'a>(&'a self, sandbox: &'a ResourceId) -> BoxFuture<'a, Result<(), TunnelRefusal>>;
}
