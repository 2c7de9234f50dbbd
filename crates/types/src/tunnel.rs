//! Settings of a sandbox's tunnel (WireGuard), as requested.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

const KEY_BYTES: usize = 32;
/// Longest name of an interface that the kernel accepts.
const INTERFACE_BYTES_MAX: usize = 15;
/// Interfaces that every sandbox already has.
const TAKEN: [&str; 2] = ["lo", "eth0"];
const MTU_MIN: u16 = 576;
const ALLOWED_MAX: usize = 1024;

/// Checked settings of one tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelSettings {
    /// Name of its interface in the sandbox.
    pub interface: String,
    /// Its own address, with the network on the other side.
    pub local: Network,
    pub endpoint: Endpoint,
    pub peer_key: [u8; KEY_BYTES],
    pub own_key: PrivateKey,
    pub mtu: u16,
    /// Networks on the other side. Packets from other addresses are dropped, and packets to others
    /// do not enter the tunnel.
    pub allowed: Vec<Network>,
    /// Interval of keepalive packets in seconds. `None` means that none are sent.
    pub keepalive: Option<u16>,
    /// True if everything without a more specific route goes through it.
    pub routes_all: bool,
}

/// A range of addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    pub address: IpAddr,
    pub bits: u8,
}

/// Address of the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name or an address. An IPv6 address is stored without its brackets.
    pub host: String,
    pub port: u16,
}

#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey([u8; KEY_BYTES]);

impl PrivateKey {
    pub const fn new(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }

    pub const fn expose(&self) -> [u8; KEY_BYTES] {
        self.0
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// Why the settings of a tunnel are refused. No text quotes what was sent, because it contains a
/// key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotATunnel {
    #[error("{0}")]
    Unreadable(&'static str),
    #[error("the tunnel cannot be: {0}")]
    Invalid(String),
}

/// Why a tunnel was not set up or taken down. The texts are for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunnelRefusal {
    #[error(transparent)]
    Settings(#[from] NotATunnel),
    /// The sandbox's egress rules do not allow a tunnel.
    #[error("{0}")]
    Rules(String),
    /// There is no tunnel to take down.
    #[error("no tunnel is active")]
    Missing,
    /// The database has no room left.
    #[error("{0}")]
    Full(String),
    /// The database cannot be asked at the moment.
    #[error("{0}")]
    Away(String),
    #[error("failed to bring the tunnel up or down: {0}")]
    Failed(String),
}

/// The settings as they are sent.
#[derive(Deserialize)]
#[serde(default)]
struct Raw {
    local_ip: String,
    peer_endpoint: String,
    peer_public_key: String,
    private_key: String,
    mtu: u32,
    /// Read but unused: the machine has one set of ports for all its sandboxes, and uses any of
    /// them.
    listen_port: u16,
    interface: String,
    allowed_ips: Vec<String>,
    persistent_keepalive: u16,
    route_all: bool,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            local_ip: String::new(),
            peer_endpoint: String::new(),
            peer_public_key: String::new(),
            private_key: String::new(),
            mtu: 1420,
            listen_port: 51_820,
            interface: "wg0".into(),
            allowed_ips: vec!["0.0.0.0/0".into()],
            persistent_keepalive: 25,
            route_all: false,
        }
    }
}

impl TunnelSettings {
    /// Reads the settings as they are sent: JSON in base64.
    pub fn read(config: &str) -> Result<Self, NotATunnel> {
        // The parsers' reasons are left out, since they could quote the key.
        let text = STANDARD
            .decode(config.trim())
            .map_err(|_| NotATunnel::Unreadable("`config` is not base64"))?;
        let raw: Raw = serde_json::from_slice(&text).map_err(|_| {
            NotATunnel::Unreadable("`config` does not hold the settings of a tunnel as JSON")
        })?;
        raw.check().map_err(NotATunnel::Invalid)
    }
}

impl Raw {
    fn check(self) -> Result<TunnelSettings, String> {
        let local = network("local_ip", &self.local_ip)?;
        if self.allowed_ips.is_empty() || self.allowed_ips.len() > ALLOWED_MAX {
            return Err(format!("`allowed_ips` lists 1 to {ALLOWED_MAX} networks"));
        }
        let allowed: Result<_, _> =
            self.allowed_ips.iter().map(|text| network("allowed_ips", text)).collect();
        let allowed = allowed?;
        let endpoint = self
            .peer_endpoint
            .parse()
            .map_err(|()| "`peer_endpoint` is not a host with a port".to_owned())?;
        let peer_key = key("peer_public_key", &self.peer_public_key)?;
        let own_key = PrivateKey(key("private_key", &self.private_key)?);
        let mtu = u16::try_from(self.mtu).ok().filter(|mtu| *mtu >= MTU_MIN);
        let mtu = mtu.ok_or_else(|| format!("`mtu` is not {MTU_MIN} to {}", u16::MAX))?;
        check_interface(&self.interface)?;
        Ok(TunnelSettings {
            interface: self.interface,
            local,
            endpoint,
            peer_key,
            own_key,
            mtu,
            allowed,
            keepalive: Some(self.persistent_keepalive).filter(|seconds| *seconds > 0),
            routes_all: self.route_all,
        })
    }
}

fn check_interface(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'=' | b'+');
    let named = (1..=INTERFACE_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain);
    match name {
        "." | ".." => Err("`interface` is not the name of an interface".into()),
        _ if !named => Err("`interface` is not the name of an interface".into()),
        _ if TAKEN.contains(&name) => Err("`interface` is one that the sandbox has already".into()),
        _ => Ok(()),
    }
}

fn network(name: &str, text: &str) -> Result<Network, String> {
    text.parse().map_err(|()| format!("`{name}` is not an address with the bits of its network"))
}

fn key(name: &str, text: &str) -> Result<[u8; KEY_BYTES], String> {
    let key = STANDARD.decode(text).ok().and_then(|key| key.try_into().ok());
    key.ok_or_else(|| format!("`{name}` is not a key of {KEY_BYTES} bytes in base64"))
}

impl Network {
    /// Returns the number of bits in an address of this family.
    pub const fn bits_max(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let differ = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                u128::from(own.to_bits() ^ other.to_bits()) << 96
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= u32::from(self.bits)
    }

    /// Returns the first address of the network.
    pub fn first(&self) -> IpAddr {
        let left = u32::from(Self::bits_max(self.address).saturating_sub(self.bits));
        match self.address {
            IpAddr::V4(own) => {
                let mask = u32::MAX.checked_shl(left).unwrap_or(0);
                std::net::Ipv4Addr::from_bits(own.to_bits() & mask).into()
            }
            IpAddr::V6(own) => {
                let mask = u128::MAX.checked_shl(left).unwrap_or(0);
                Ipv6Addr::from_bits(own.to_bits() & mask).into()
            }
        }
    }
}

impl FromStr for Network {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, bits) = text.split_once('/').ok_or(())?;
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let bits = bits.parse().ok().filter(|bits| *bits <= Self::bits_max(address)).ok_or(())?;
        Ok(Self { address, bits })
    }
}

impl FromStr for Endpoint {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(())?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => address.parse::<Ipv6Addr>().map_err(|_| ())?.to_string(),
            None => host.to_owned(),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
        let fits = bracketed.is_some() || (!host.is_empty() && host.bytes().all(plain));
        fits.then_some(Self { host, port }).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(change: serde_json::Value) -> Result<TunnelSettings, NotATunnel> {
        let key = STANDARD.encode([7; KEY_BYTES]);
        let mut settings = json!({
            "local_ip": "10.0.0.2/32", "peer_endpoint": "vpn.example.com:51820", "peer_public_key": key, "private_key": key,
        });
        settings.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        TunnelSettings::read(&STANDARD.encode(settings.to_string()))
    }

    #[test]
    fn what_is_left_out_is_as_documented() {
        let settings = read(json!({})).unwrap();
        assert_eq!((settings.mtu, settings.keepalive), (1420, Some(25)));
        assert_eq!((settings.interface.as_str(), settings.routes_all), ("wg0", false));
        assert_eq!(settings.allowed, ["0.0.0.0/0".parse().unwrap()]);
        assert!(!format!("{settings:?}").contains("7, 7, 7, 7]), mtu"));
        assert_eq!(format!("{:?}", settings.own_key), "PrivateKey");
    }

    #[test]
    fn every_setting_is_checked() {
        let right = json!({"local_ip": "fd00::2/64", "peer_endpoint": "[::1]:1", "allowed_ips": ["::/0"], "route_all": true});
        assert_eq!(read(right).unwrap().endpoint.host, "::1");
        for wrong in [
            json!({"local_ip": "10.0.0.2"}),
            json!({"local_ip": "10.0.0.2/33"}),
            json!({"peer_endpoint": "vpn.example.com"}),
            json!({"peer_endpoint": ":1"}),
            json!({"peer_endpoint": "a:0"}),
            json!({"peer_public_key": "short"}),
            json!({"private_key": ""}),
            json!({"mtu": 12}),
            json!({"mtu": 65_536}),
            json!({"interface": "a/b"}),
            json!({"interface": "eth0"}),
            json!({"interface": "much-too-long-a-name"}),
            json!({"allowed_ips": []}),
            json!({"allowed_ips": ["everything"]}),
        ] {
            assert!(matches!(read(wrong.clone()), Err(NotATunnel::Invalid(_))), "{wrong}");
        }
        assert!(matches!(read(json!({"mtu": "x"})), Err(NotATunnel::Unreadable(_))));
    }

    #[test]
    fn a_network_holds_what_begins_like_it() {
        let network: Network = "10.1.2.3/8".parse().unwrap();
        assert_eq!(network.first().to_string(), "10.0.0.0");
        assert!(network.contains("10.255.0.1".parse().unwrap()));
        assert!(!network.contains("11.0.0.1".parse().unwrap()));
        let all: Network = "::/0".parse().unwrap();
        assert!(all.contains("fd00::1".parse().unwrap()) && !all.contains(network.address));
        assert_eq!(all.first().to_string(), "::");
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC{0,60}") {
            let _ = (text.parse::<Network>(), text.parse::<Endpoint>(), key("k", &text));
            let _ = TunnelSettings::read(&text);
            let _ = TunnelSettings::read(&STANDARD.encode(&text));
        }

        #[test]
        fn the_first_of_a_network_is_in_it(address: u128, bits in 0_u8..=128) {
            let network = Network { address: Ipv6Addr::from_bits(address).into(), bits };
            prop_assert!(network.contains(network.first()) && network.contains(network.address));
        }
    }
}
