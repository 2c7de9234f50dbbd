//! Admission of connections: which are accepted, and which client each belongs to.

use super::heads::HeadPools;
use super::readers::Readers;
use crate::config::Config;
use admission::{Connection, Connections, Limits, Linger, Places};
use http::HeaderMap;
use std::net::IpAddr;
use std::time::Duration;
use types::Remote;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Admits connections of all listeners, which share one set of limits. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    connections: Connections<Remote>,
    trust_forwarded: bool,
    pub(crate) first_request: Duration,
    pub(crate) readers: Readers,
    pub(crate) heads: HeadPools,
    pub(crate) linger: Linger,
}

impl Gate {
    pub(crate) fn new(config: &Config) -> Self {
        let server = &config.server;
        let count = |count: usize| count as u64;
        let signed_in = count(server.connections_signed_in);
        let connections = Connections::new(Places {
            strangers: count(server.connections_max).saturating_sub(signed_in),
            signed_in: Limits { total: signed_in, share: count(server.connections_key_max) },
            client: count(server.connections_client_max),
        });
        let trust_forwarded = config.gateway.trust_forwarded;
        let readers = Readers::new(server.answer_stall.0);
        let heads = HeadPools::new(server);
        let linger = Linger::new(server.linger.0, server.lingering_max);
        let first_request = server.header_timeout.0;
        Self { connections, trust_forwarded, first_request, readers, heads, linger }
    }

    /// Admits a connection; `None` if the client already has too many.
    pub(crate) fn admit(&self, peer: IpAddr) -> Option<Connection> {
        let remote = Remote::of(peer);
        // A proxy stands for everybody behind it, and a client on this machine may be a proxy.
        let one_client = !self.trust_forwarded && !remote.is_local();
        let admitted = self.connections.admit(one_client.then_some(&remote));
        admitted
            .inspect_err(|refused| tracing::debug!(%remote, %refused, "a connection was refused"))
            .ok()
    }

    /// Closes connections of strangers, because the files that may be open run out.
    pub(crate) fn make_room(&self, count: usize) {
        self.connections.make_room(count);
    }

    /// Returns the sender of a request. No other place decides whether a forwarding header is
    /// trusted.
    pub(crate) fn remote(&self, peer: IpAddr, headers: &HeaderMap) -> Remote {
        if !self.trust_forwarded {
            return Remote::of(peer);
        }
        let forwarded = headers.get_all(FORWARDED_FOR).iter().next_back();
        Remote::behind(peer, forwarded.and_then(|list| list.to_str().ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn gate(trust: bool) -> Gate {
        let flags = [
            ("gateway.trust_forwarded", trust.to_string()),
            ("server.connections_client_max", "2".to_owned()),
        ];
        Gate::new(&load(None, std::iter::empty(), &flags).unwrap())
    }

    #[test]
    fn one_client_has_a_share_and_a_proxy_has_none() {
        let (stranger, local) = ([192, 0, 2, 7].into(), [127, 0, 0, 1].into());
        let held =
            |gate: &Gate, peer| (0..5).filter_map(|_| gate.admit(peer)).collect::<Vec<_>>().len();
        assert_eq!((held(&gate(false), stranger), held(&gate(false), local)), (2, 5));
        assert_eq!(held(&gate(true), stranger), 5);
    }

    #[test]
    fn a_header_is_believed_only_of_a_trusted_proxy() {
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED_FOR, "10.9.8.7".parse().unwrap());
        headers.append(FORWARDED_FOR, "10.9.8.7, 198.51.100.7".parse().unwrap());
        let peer = [192, 0, 2, 7].into();
        assert_eq!(gate(true).remote(peer, &headers).to_string(), "198.51.100.7");
        assert_eq!(gate(false).remote(peer, &headers).to_string(), "192.0.2.7");
    }
}
