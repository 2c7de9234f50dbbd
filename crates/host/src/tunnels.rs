//! Tunnels of this machine's instances, as `control` sees them.

use crate::tunnel_lookups::look_up;
use crate::{Inner, Interrupted, LocalMachine};
use control::tunnel_maker::{TunnelFault, TunnelMaker};
use futures_util::future::BoxFuture;
use node::{InstanceName, TunnelError};
use types::chain;
use types::tunnel::TunnelSettings;

impl From<Interrupted> for TunnelFault {
    fn from(interrupted: Interrupted) -> Self {
        Self::Broken(interrupted.to_string())
    }
}

fn fault(error: &TunnelError) -> TunnelFault {
    match error {
        TunnelError::Gone => TunnelFault::Gone,
        TunnelError::Closed => TunnelFault::Rules(error.to_string()),
        TunnelError::Endpoint(_) | TunnelError::Refused(_) | TunnelError::Unfit(_) => {
            TunnelFault::Unfit(error.to_string())
        }
        TunnelError::Machine(_) => TunnelFault::Broken(chain(error)),
    }
}

impl TunnelMaker for LocalMachine {
    fn set<'a>(
        &'a self,
        instance: &'a InstanceName,
        settings: TunnelSettings,
    ) -> BoxFuture<'a, Result<(), TunnelFault>> {
        Box::pin(async move {
            let lookups = &self.0.tunnel_lookups;
            let found = look_up(lookups, instance, &settings.endpoint).await?;
            let id = instance.clone();
            let work = move |inner: &Inner| {
                let mut result = Err(TunnelFault::Gone);
                for endpoint in found {
                    result = inner.node.set_tunnel(&id, &settings, endpoint).map_err(|e| fault(&e));
                    if result.is_ok() {
                        break;
                    }
                }
                result
            };
            self.on_node(work).await
        })
    }

    fn remove<'a>(&'a self, instance: &'a InstanceName) -> BoxFuture<'a, Result<(), TunnelFault>> {
        let id = instance.clone();
        let remove = move |inner: &Inner| match inner.node.remove_tunnel(&id) {
            Ok(_) | Err(node::Error::Missing(_)) => Ok(()),
            Err(error) => Err(TunnelFault::Broken(chain(&error))),
        };
        Box::pin(self.on_node(remove))
    }

    fn has(&self, instance: &InstanceName) -> bool {
        self.0.node.has_tunnel(instance).unwrap_or(false)
    }
}
