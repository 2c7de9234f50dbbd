//! What the control plane asks of a machine that makes WireGuard tunnels for its instances. Who may
//! have one is decided in [`crate::tunnels`].

use futures_util::future::BoxFuture;
use types::instance::InstanceName;
use types::tunnel::TunnelSettings;

pub trait TunnelMaker: Send + Sync + 'static {
    /// Gives an instance a tunnel, which replaces the one that it may have. The tunnel ends with
    /// the instance, and with this program.
    fn set<'a>(
        &'a self,
        instance: &'a InstanceName,
        settings: TunnelSettings,
    ) -> BoxFuture<'a, Result<(), TunnelFault>>;

    /// Ends the tunnel of an instance. Does nothing if it has none.
    fn remove<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), TunnelFault>>;

    fn has(&self, instance: &InstanceName) -> bool;
}

#[derive(Debug, thiserror::Error)]
pub enum TunnelFault {
    /// The rules of the instance do not allow a tunnel.
    #[error("{0}")]
    Rules(String),
    /// Such a tunnel is impossible; the text tells the user why.
    #[error("{0}")]
    Unfit(String),
    #[error("the instance is gone")]
    Gone,
    /// The machine failed, and its log says why.
    #[error("the machine failed: {0}")]
    Broken(String),
}
