//! Connections of programs that do not use the proxy. The firewall has redirected them here, and
//! the kernel knows where they were going.

use crate::client::{Arrival, Client, of_unasked};
use crate::passage::{Aim, Passage};
use crate::peek::Stream as _;
use crate::policy::Verdict;
use crate::service::{Blocked, Service};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use tokio::net::TcpStream;
use types::parts::hosts::Host;

/// Asks the kernel where a connection was going.
pub(crate) fn original(stream: &TcpStream) -> io::Result<SocketAddrV4> {
    let address = SockRef::from(stream).original_dst_v4()?;
    address.as_socket_ipv4().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

pub(crate) async fn serve(service: Arc<Service>, stream: TcpStream, address: Ipv4Addr) {
    let Some(client) = service.client(address).await else { return stream.reset() };
    let original = match (service.original)(&stream) {
        Ok(original) => original,
        Err(error) => {
            tracing::debug!(%error, "a connection that was sent here by nobody");
            return stream.reset();
        }
    };
    let aim = aim(&service, &client, original);
    let policy = client.policy();
    // If only the proxy may be used, there is no need to look at the contents.
    let is_past = aim.names.iter().all(|name| policy.bypasses(name));
    if policy.proxy_only() && !is_past {
        if let Verdict::Block { rule } = of_unasked(&policy, &aim.names) {
            let blocked = Blocked { host: &aim.names[0], port: aim.port, rule: &rule };
            service.note_blocked(&client, &blocked);
        }
        return stream.reset();
    }
    Passage { service, client, aim }.carry(stream, None).await;
}

fn aim(service: &Service, client: &Client, original: SocketAddrV4) -> Aim {
    let host = Host::Address(IpAddr::V4(*original.ip()));
    let names = client.known_as(&host, service.world.uptime_ms());
    Aim { arrival: Arrival::Transparent, host, port: original.port(), names }
}
