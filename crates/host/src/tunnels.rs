//! Tunnels of this machine's instances, as `control` sees them.

use crate::{Inner, Interrupted, LocalMachine};
use admission::{Limits, Pool};
use control::machine::Wait;
use control::tunnel_maker::{TunnelFault, TunnelMaker};
use node::{InstanceName, TunnelError};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;
use types::chain;
use types::tunnel::{Endpoint, TunnelSettings};

/// How long to wait for the address of the other end.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How many lookups run at once, one for each instance.
const LOOKUPS_MAX: u64 = 32;

/// A [`LocalMachine`] restricted to what concerns tunnels.
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

/// Makes the pool that limits lookups. Each one occupies a thread for as long as somebody else's
/// name server takes, and everything that blocks shares these threads.
pub(crate) fn lookups() -> Pool<InstanceName> {
    Pool::new("lookups of other ends of tunnels", Limits { total: LOOKUPS_MAX, share: 1 })
}

impl Inner {
    /// Looks up the addresses of the other end. The node decides whether they may be reached.
    async fn find_end(
        &self,
        instance: &InstanceName,
        endpoint: &Endpoint,
    ) -> Result<Vec<SocketAddr>, TunnelFault> {
        let unfit = |why: &str| TunnelFault::Unfit(format!("{} {why}", endpoint.host));
        let place = self.tunnel_lookups.take(instance, 1);
        let place = place.map_err(|_| unfit("is still looked up; ask again in some seconds"))?;
        let name = (endpoint.host.clone(), endpoint.port);
        let lookup = tokio::task::spawn_blocking(move || {
            // Held until the thread is free again, even if nobody waits for it any more.
            let _place = place;
            name.to_socket_addrs().map(Vec::from_iter)
        });
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await;
        match found {
            Ok(Ok(Ok(found))) if !found.is_empty() => Ok(found),
            _ => Err(unfit("has no address")),
        }
    }
}

impl TunnelMaker for LocalTunnels {
    fn set<'a>(
        &'a self,
        instance: &'a InstanceName,
        settings: TunnelSettings,
    ) -> Wait<'a, Result<(), TunnelFault>> {
        Box::pin(async move {
            let found = self.0.0.find_end(instance, &settings.endpoint).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instance_has_one_lookup_and_leaves_others_theirs() {
        let (lookups, name) = (lookups(), |name: &str| InstanceName::new(name).unwrap());
        let held = lookups.take(&name("one"), 1).unwrap();
        assert!(lookups.take(&name("one"), 1).is_err());
        drop(lookups.take(&name("other"), 1).unwrap());
        drop(held);
        drop(lookups.take(&name("one"), 1).unwrap());
    }
}
