//! What the management side asks of a machine that makes tunnels (WireGuard) for its instances. Who may
//! have one is decided in [`crate::tunnels`].

use crate::machine::Wait;
use types::instance::InstanceName;
use types::tunnel::TunnelSettings;

pub trait TunnelMaker: Send + Sync + 'static {
    /// Gives an instance a tunnel, instead of the one that it may have. It ends with the instance, and
    /// with this program.
    fn set<'a>(
        &'a self,
        instance: &'a InstanceName,
        settings: TunnelSettings,
    ) -> Wait<'a, Result<(), TunnelFault>>;

    /// Ends it. Without one there is nothing to do.
    fn remove<'a>(&'a self, instance: &'a InstanceName) -> Wait<'a, Result<(), TunnelFault>>;

    fn has(&self, instance: &InstanceName) -> bool;
}

#[derive(Debug, thiserror::Error)]
pub enum TunnelFault {
    /// The rules of the instance do not go with a tunnel.
    #[error("{0}")]
    Rules(String),
    /// Such a tunnel cannot be; the text says why, to its user.
    #[error("{0}")]
    Unfit(String),
    #[error("the instance is gone")]
    Gone,
    /// The machine failed, and its log says why.
    #[error("the machine failed: {0}")]
    Broken(String),
}
