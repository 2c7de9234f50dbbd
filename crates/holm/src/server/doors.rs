//! Doors: the addresses at which workloads on this machine reach the server that runs them. Nothing
//! else on the machine is open to them.

use super::addresses::Urls;
use reqwest::Url;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// A host name not resolved by then opens no door.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns the addresses on this machine that the server's own URLs lead to. Anybody else can reach
/// them too. An address on another machine is not returned; that machine decides about it.
pub(super) async fn of(urls: &Urls) -> Vec<SocketAddrV4> {
    let mut doors = Vec::new();
    for url in [&urls.public, &urls.content] {
        for address in addresses(url).await {
            match address {
                SocketAddr::V4(address) if is_own(address) && !doors.contains(&address) => {
                    doors.push(address);
                }
                _ => {}
            }
        }
    }
    doors
}

async fn addresses(url: &str) -> Vec<SocketAddr> {
    let parsed = Url::parse(url).ok();
    let place = parsed.as_ref().and_then(|url| {
        // IPv6 addresses are in brackets in a URL.
        Some((url.host_str()?.trim_matches(['[', ']']), url.port_or_known_default()?))
    });
    let Some(place) = place else { return Vec::new() };
    match tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host(place)).await {
        Ok(Ok(found)) => found.collect(),
        Ok(Err(error)) => {
            tracing::warn!(url, %error, "workloads may not reach this server: its name is not found");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!(
                url,
                "workloads may not reach this server: its name is not found in time"
            );
            Vec::new()
        }
    }
}

/// True if the address belongs to this machine, which is found out by binding to it. Loopback does
/// not count: inside a workload it is the workload's own.
fn is_own(address: SocketAddrV4) -> bool {
    let ip = *address.ip();
    !ip.is_loopback() && !ip.is_unspecified() && UdpSocket::bind((IpAddr::V4(ip), 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_addresses_of_this_machine_are_doors() {
        let urls = |public: &str, content: &str| Urls {
            public: public.to_owned(),
            content: content.to_owned(),
        };
        for elsewhere in
            ["http://127.0.0.1:8700", "http://localhost:8700", "http://192.0.2.77", "no"]
        {
            assert_eq!(of(&urls(elsewhere, elsewhere)).await, [], "{elsewhere}");
        }
        let route = UdpSocket::bind("0.0.0.0:0").unwrap();
        // Nothing is sent: connecting only makes the kernel choose a source address.
        if route.connect("192.0.2.77:9").is_err() {
            return;
        }
        let IpAddr::V4(own) = route.local_addr().unwrap().ip() else { return };
        let doors = of(&urls(&format!("http://{own}"), &format!("https://{own}"))).await;
        assert_eq!(doors, [SocketAddrV4::new(own, 80), SocketAddrV4::new(own, 443)]);
    }
}
