//! Hosts that connections go to, as their users write them, and the internal places that an
//! operator allows.

use super::addresses::is_public;
use std::fmt;
use std::net::IpAddr;

/// A host name or an IP address. Rules and connections both rely on this one place to tell them
/// apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// Lower case, without a trailing dot.
    Name(String),
    Address(IpAddr),
}

/// Longest host name and longest label that the DNS allows.
const NAME_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;

impl Host {
    /// Reads a host. Returns `None` for what is neither name nor address, including addresses in
    /// notations that only some programs know, such as `0x7f.1` or `2130706433`: what one program
    /// reads as a name, another would reach as an address.
    pub fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Some(address) = bare {
            return address.parse().ok().map(|address| Self::Address(IpAddr::V6(address)).plain());
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address).plain());
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            (1..=LABEL_CHARS_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().next().is_some_and(|first| first.is_ascii_digit())
            && (last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x"));
        (name.len() <= NAME_CHARS_MAX && name.split('.').all(label) && !is_number)
            .then_some(Self::Name(name))
    }

    /// Unwraps an IPv4 address that is mapped into IPv6.
    fn plain(self) -> Self {
        match self {
            Self::Address(IpAddr::V6(address)) => {
                Self::Address(address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4))
            }
            other => other,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Hosts, suffixes, addresses and ranges, as listed in settings.
#[derive(Debug, Clone, Default)]
pub struct Places {
    names: Vec<String>,
    /// Suffixes, each with a leading dot.
    suffixes: Vec<String>,
    ranges: Vec<(IpAddr, u32)>,
}

/// An entry of the list that is none of these.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no host, `*.suffix`, address or range")]
pub struct BadPlace(pub String);

impl Places {
    pub fn parse(entries: &[String]) -> Result<Self, BadPlace> {
        let mut places = Self::default();
        for entry in entries {
            places.add(entry).ok_or_else(|| BadPlace(entry.clone()))?;
        }
        Ok(places)
    }

    fn add(&mut self, entry: &str) -> Option<()> {
        if let Some((address, bits)) = entry.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits: u32 = bits.parse().ok()?;
            self.ranges.push((address, (bits <= width(address)).then_some(bits)?));
            return Some(());
        }
        if let Some(suffix) = entry.strip_prefix("*.") {
            let Host::Name(suffix) = Host::parse(suffix)? else { return None };
            self.suffixes.push(format!(".{suffix}"));
            return Some(());
        }
        match Host::parse(entry)? {
            Host::Name(name) => self.names.push(name),
            Host::Address(address) => self.ranges.push((address, width(address))),
        }
        Some(())
    }

    pub fn has(&self, host: &Host) -> bool {
        match host {
            Host::Address(address) => self.has_address(*address),
            Host::Name(name) => {
                self.names.contains(name)
                    || self.suffixes.iter().any(|suffix| name.ends_with(suffix.as_str()))
            }
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|(range, bits)| match (range, address) {
            (IpAddr::V4(range), IpAddr::V4(address)) => {
                let differ = range.to_bits() ^ address.to_bits();
                differ.checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(range), IpAddr::V6(address)) => {
                let differ = range.to_bits() ^ address.to_bits();
                differ.checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        })
    }

    /// Returns true if `address` may be reached as an address of `host`. `self` lists what may be
    /// reached even though it is internal; `is_own` recognizes addresses of this machine.
    pub fn permit(
        &self,
        host: &Host,
        address: IpAddr,
        is_own: impl FnOnce(IpAddr) -> bool,
    ) -> bool {
        let address = match address {
            IpAddr::V6(wrapping) => wrapping.to_ipv4_mapped().map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        self.has(host) || self.has_address(address) || (is_public(address) && !is_own(address))
    }
}

const fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_address_has_one_notation() {
        let name = |text: &str| Some(Host::Name(text.to_owned()));
        let address = |text: &str| Some(Host::Address(text.parse().unwrap()));
        assert_eq!(Host::parse("API.Example.com."), name("api.example.com"));
        assert_eq!(Host::parse("127.0.0.1"), address("127.0.0.1"));
        assert_eq!(Host::parse("[::ffff:127.0.0.1]"), address("127.0.0.1"));
        assert_eq!(Host::parse("[::1]"), address("::1"));
        let odd = [
            "",
            ".",
            "a..b",
            "2130706433",
            "0x7f000001",
            "0177.0.0.1.",
            "127.1",
            "1.2.3.4.5",
            "a.0x7f",
            "[127.0.0.1]",
            "a b",
            "exämple.com",
            "a/b",
            "a:80",
            "-\0",
        ];
        for odd in odd {
            assert_eq!(Host::parse(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(text in ".{0,80}") {
            if let Some(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Some(host));
            }
        }
    }

    #[test]
    fn only_what_is_named_is_reached_inside() {
        const OWN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 2));
        let entries = ["db.corp", "*.lan", "10.1.0.0/16", "192.168.7.7", "::1", "0.0.0.0/32"];
        let places = Places::parse(&entries.map(str::to_owned)).unwrap();
        let permit = |host: &str, address: &str| {
            places.permit(&Host::parse(host).unwrap(), address.parse().unwrap(), |own| own == OWN)
        };
        assert!(permit("db.corp", "10.9.9.9"));
        assert!(permit("a.b.lan", "127.0.0.1"));
        assert!(!permit("lan", "127.0.0.1"));
        assert!(permit("any.example", "10.1.255.255"));
        assert!(!permit("any.example", "10.2.0.0"));
        assert!(permit("any.example", "192.168.7.7"));
        assert!(!permit("any.example", "192.168.7.8"));
        assert!(permit("[::1]", "::1"));
        assert!(!permit("any.example", "127.0.0.1"));
        assert!(!permit("any.example", "::ffff:10.2.0.1"));
        assert!(permit("any.example", "::ffff:10.1.0.1"));
        assert!(!permit("any.example", "169.254.169.254"));
        assert!(permit("any.example", "1.1.1.1"));
        assert!(!permit("any.example", "1.1.1.2"), "it is the machine's own");
        assert!(permit("db.corp", "1.1.1.2"));
        for bad in ["", "10.0.0.0/33", "a b", "*.10.0.0.1", "10.0.0.0/x", "1.2/16"] {
            assert!(Places::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
