//! Tunnels of instances of this machine, as the management side sees them.

use crate::{Inner, Interrupted, LocalMachine};
use control::machine::Wait;
use control::tunnel_maker::{TunnelFault, TunnelMaker};
use node::{InstanceName, TunnelError};
use std::net::SocketAddr;
use std::time::Duration;
use types::chain;
use types::tunnel::{Endpoint, TunnelSettings};

/// For the name of the other end.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Nothing but [`LocalMachine`], for those who may only ask about tunnels.
pub(crate) struct LocalTunnels(pub(crate) LocalMachine);

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

/// The addresses of the other end. The node judges whether they may be reached.
async fn find(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, TunnelFault> {
    let lookup = tokio::net::lookup_host((endpoint.host.as_str(), endpoint.port));
    let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await.ok().and_then(Result::ok);
    let found: Vec<_> = found.into_iter().flatten().collect();
    match found.is_empty() {
        true => Err(TunnelFault::Unfit(format!("{} has no address", endpoint.host))),
        false => Ok(found),
    }
}

impl TunnelMaker for LocalTunnels {
    fn set<'a>(
        &'a self,
        instance: &'a InstanceName,
        settings: TunnelSettings,
    ) -> Wait<'a, Result<(), TunnelFault>> {
        Box::pin(async move {
            let (id, found) = (instance.clone(), find(&settings.endpoint).await?);
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
            self.0.on_node(work).await
        })
    }

    fn remove<'a>(&'a self, instance: &'a InstanceName) -> Wait<'a, Result<(), TunnelFault>> {
        let id = instance.clone();
        let remove = move |inner: &Inner| match inner.node.remove_tunnel(&id) {
            Ok(_) | Err(node::Error::Missing(_)) => Ok(()),
            Err(error) => Err(TunnelFault::Broken(chain(&error))),
        };
        Box::pin(self.0.on_node(remove))
    }

    fn has(&self, instance: &InstanceName) -> bool {
        self.0.0.node.has_tunnel(instance).unwrap_or(false)
    }
}
