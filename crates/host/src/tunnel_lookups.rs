//! Looks up the other ends of tunnels.

use admission::{Limits, Pool};
use control::tunnel_maker::TunnelFault;
use node::InstanceName;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;
use types::tunnel::Endpoint;

/// How long to wait for the address of the other end.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How many lookups run at once, one for each instance.
const LOOKUPS_MAX: u64 = 32;

/// Makes the pool that limits lookups. Each one occupies a thread for as long as somebody else's
/// name server takes, and everything that blocks shares these threads.
pub(crate) fn lookups() -> Pool<InstanceName> {
    Pool::new("lookups of other ends of tunnels", Limits { total: LOOKUPS_MAX, share: 1 })
}

/// Looks up the addresses of the other end. The node decides whether they may be reached.
pub(crate) async fn look_up(
    lookups: &Pool<InstanceName>,
    instance: &InstanceName,
    endpoint: &Endpoint,
) -> Result<Vec<SocketAddr>, TunnelFault> {
    let unfit = |why: &str| TunnelFault::Unfit(format!("{} {why}", endpoint.host));
    let place = lookups.take(instance, 1);
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
