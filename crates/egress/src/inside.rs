//! What is not on the internet, and the exceptions that the operator names.

use crate::host::Host;
use std::net::{IpAddr, UdpSocket};
use types::parts::addresses::is_public;

/// Hosts, suffixes, addresses and ranges, as settings list them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    names: Vec<String>,
    /// Each begins with a dot.
    suffixes: Vec<String>,
    ranges: Vec<(IpAddr, u32)>,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no host, `*.suffix`, address or range")]
pub struct BadPlace(pub String);

impl Places {
    pub(crate) fn parse(entries: &[String]) -> Result<Self, BadPlace> {
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

    pub(crate) fn has(&self, host: &Host) -> bool {
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

    /// Whether `address` may be reached for `host`. `self` is what may be reached although it is
    /// inside.
    pub(crate) fn permit(&self, host: &Host, address: IpAddr) -> bool {
        self.has(host)
            || self.has_address(address)
            || (is_public(address) && !is_of_this_machine(address))
    }
}

const fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Only addresses of the machine can be bound, also those that it got a moment ago. Where the
/// kernel is told to bind any (`ip_nonlocal_bind`), nothing is reached, and nothing is let out by mistake.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_reached_inside() {
        let entries = ["db.corp", "*.lan", "10.1.0.0/16", "192.168.7.7", "::1", "0.0.0.0/32"];
        let places = Places::parse(&entries.map(str::to_owned)).unwrap();
        let permit = |host: &str, address: &str| {
            places.permit(&Host::parse(host).unwrap(), address.parse().unwrap())
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
        assert!(permit("any.example", "1.1.1.1"));
        for bad in ["", "10.0.0.0/33", "a b", "*.10.0.0.1", "10.0.0.0/x", "1.2/16"] {
            assert!(Places::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
