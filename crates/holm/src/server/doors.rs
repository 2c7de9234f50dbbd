//! Where workloads of this machine reach the server that runs them, although nothing else of the
//! machine is open to them.

use super::addresses::Urls;
use reqwest::Url;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// A name that is not found by then opens nothing.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// The addresses of this machine that the server's own URLs lead to. Everybody else reaches them,
/// too; what leads to another machine is for that machine to decide.
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
        // Addresses of version 6 stand in brackets there.
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

/// Loopback is the workload's own there. Nobody can listen at an address of another machine.
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
        // Nothing is sent: the machine only says from which address it would.
        if route.connect("192.0.2.77:9").is_err() {
            return;
        }
        let IpAddr::V4(own) = route.local_addr().unwrap().ip() else { return };
        let doors = of(&urls(&format!("http://{own}"), &format!("https://{own}"))).await;
        assert_eq!(doors, [SocketAddrV4::new(own, 80), SocketAddrV4::new(own, 443)]);
    }
}
