//! The other end of a connection, as far as its address tells.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bits of an IPv6 address that identify one customer of a provider, who can use any address below
/// them.
const IPV6_PREFIX: u32 = 64;

/// A caller about whom only the address is known. Limits for strangers are counted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Remote(IpAddr);

impl Remote {
    /// Stands for requests that did not come over a connection. Together they get the share of one
    /// client.
    pub const UNKNOWN: Self = Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => IpAddr::V6(Ipv6Addr::from_bits(
                address.to_bits() & (u128::MAX << (128 - IPV6_PREFIX)),
            )),
            other => other,
        })
    }

    /// Returns the client of a request that a trusted proxy passed on. `forwarded` is the last
    /// `X-Forwarded-For` header: only its last address comes from the proxy itself; those before it
    /// are what the proxy was told.
    pub fn behind(proxy: IpAddr, forwarded: Option<&str>) -> Self {
        let last = forwarded.and_then(|list| list.rsplit(',').next()).map(str::trim);
        Self::of(last.and_then(address).unwrap_or(proxy))
    }

    /// Returns true if the caller is on this machine: most likely a proxy in front, or an
    /// administrator.
    pub fn is_local(self) -> bool {
        self.0.is_loopback()
    }
}

/// Reads an address, with or without the port that some proxies add.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().or_else(|| text.parse().ok().map(|whole: SocketAddr| whole.ip()))
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V6(address) if !address.is_loopback() => write!(f, "{address}/{IPV6_PREFIX}"),
            address => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(forwarded: Option<&str>, client: &str) {
        assert_eq!(Remote::behind("192.0.2.1".parse().unwrap(), forwarded).to_string(), client);
    }

    #[test]
    fn a_proxy_is_believed_in_what_it_says_itself() {
        check(None, "192.0.2.1");
        check(Some("198.51.100.7"), "198.51.100.7");
        check(Some("10.0.0.1, 198.51.100.7"), "198.51.100.7");
        check(Some("198.51.100.7:4711"), "198.51.100.7");
        check(Some("[2001:db8::1]:4711"), "2001:db8::/64");
        check(Some("unknown"), "192.0.2.1");
    }

    #[test]
    fn a_network_of_ipv6_is_one_client_and_an_address_of_ipv4_too() {
        let client = |text: &str| Remote::of(text.parse().unwrap());
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::9"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(client("::ffff:198.51.100.7"), client("198.51.100.7"));
        assert!(
            client("::1").is_local()
                && client("127.0.0.9").is_local()
                && client("::ffff:127.0.0.1").is_local()
        );
        assert!(!Remote::UNKNOWN.is_local());
    }

    proptest! {
        #[test]
        fn whatever_a_header_says_is_read(forwarded in ".*") {
            let _ = Remote::behind(IpAddr::V4(Ipv4Addr::LOCALHOST), Some(&forwarded));
        }
    }
}
