//! How the data plane learns of routes: in the same process, by a call.

use control::machine::Edge;
use gateway::Gateway;
use std::collections::HashMap;
use tokio::sync::watch;
use types::edge::{PreviewAddress, RouteChange};
use types::ids::ResourceId;

/// The hosts of previews below custom domains, as they change.
pub(super) type Hosts = watch::Receiver<HashMap<ResourceId, String>>;

pub(super) struct Local {
    gateway: Gateway,
    hosts: watch::Sender<HashMap<ResourceId, String>>,
}

impl Local {
    pub(super) fn new(gateway: Gateway) -> Self {
        Self { gateway, hosts: watch::Sender::default() }
    }

    pub(super) fn hosts(&self) -> Hosts {
        self.hosts.subscribe()
    }
}

impl Edge for Local {
    fn publish(&self, change: RouteChange) {
        self.hosts.send_if_modified(|hosts| note(hosts, &change));
        self.gateway.routes().apply(change);
    }
}

/// Whether the change concerns a host.
fn note(hosts: &mut HashMap<ResourceId, String>, change: &RouteChange) -> bool {
    match change {
        RouteChange::Preview(route) => match &route.at {
            PreviewAddress::Host(host) => {
                let host = host.to_ascii_lowercase();
                hosts.insert(route.id.clone(), host.clone()) != Some(host)
            }
            PreviewAddress::Label(_) => hosts.remove(&route.id).is_some(),
        },
        RouteChange::Gone(id) => hosts.remove(id).is_some(),
        RouteChange::Workload(_) | RouteChange::Domain(_) => false,
    }
}
