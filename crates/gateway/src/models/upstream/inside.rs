//! Which addresses a provider may have. Users choose them, and what only this server can reach must
//! not be reached through it.

use std::net::{IpAddr, UdpSocket};
use types::parts::addresses::is_public;

/// Hosts, `*.suffix`, addresses and ranges that the operator lets be reached although they are inside.
#[derive(Debug, Clone, Default)]
pub struct Inside {
    names: Vec<String>,
    /// Each begins with a dot.
    suffixes: Vec<String>,
    ranges: Vec<(IpAddr, u32)>,
}

/// An entry of the list that is none.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no host, `*.suffix`, address or range")]
pub struct BadInside(pub String);

impl Inside {
    pub(crate) fn parse(entries: &[String]) -> Result<Self, BadInside> {
        let mut inside = Self::default();
        for entry in entries {
            inside.add(entry).ok_or_else(|| BadInside(entry.clone()))?;
        }
        Ok(inside)
    }

    fn add(&mut self, entry: &str) -> Option<()> {
        if let Some((address, bits)) = entry.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits: u32 = bits.parse().ok()?;
            self.ranges.push((address, (bits <= width(address)).then_some(bits)?));
        } else if let Ok(address) = entry.trim_matches(['[', ']']).parse::<IpAddr>() {
            self.ranges.push((address, width(address)));
        } else if let Some(suffix) = entry.strip_prefix("*.").filter(|suffix| is_name(suffix)) {
            self.suffixes.push(format!(".{}", suffix.to_ascii_lowercase()));
        } else if is_name(entry) {
            self.names.push(entry.trim_end_matches('.').to_ascii_lowercase());
        } else {
            return None;
        }
        Some(())
    }

    fn has_name(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.names.contains(&host)
            || self.suffixes.iter().any(|suffix| host.ends_with(suffix.as_str()))
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

    /// Whether this address may be reached for the host that leads to it.
    pub(crate) fn permits(&self, host: &str, address: IpAddr) -> bool {
        let plain = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
            IpAddr::V4(_) => address,
        };
        self.has_name(host)
            || self.has_address(plain)
            || (is_public(plain) && !is_of_this_machine(plain))
    }
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // What looks like a number would be an address to some.
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    !last.is_empty() && text.bytes().all(plain) && !last.bytes().all(|byte| byte.is_ascii_digit())
}

const fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Only addresses of the machine can be bound, also those that it got a moment ago.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_is_reached_inside() {
        let entries = ["llm.corp", "*.lan", "10.1.0.0/16", "192.168.7.7", "[::1]", "0.0.0.0/32"];
        let inside = Inside::parse(&entries.map(str::to_owned)).unwrap();
        let permits = |host: &str, address: &str| inside.permits(host, address.parse().unwrap());
        assert!(permits("LLM.corp.", "10.9.9.9"));
        assert!(permits("a.b.lan", "127.0.0.1"));
        assert!(!permits("lan", "127.0.0.1"));
        assert!(permits("any.example", "10.1.255.255"));
        assert!(permits("any.example", "::ffff:10.1.0.1"));
        assert!(!permits("any.example", "10.2.0.0"));
        assert!(permits("any.example", "192.168.7.7"));
        assert!(!permits("any.example", "192.168.7.8"));
        assert!(permits("::1", "::1"));
        assert!(!permits("any.example", "127.0.0.1"));
        assert!(!permits("any.example", "169.254.169.254"));
        assert!(!permits("any.example", "::ffff:10.2.0.1"));
        assert!(permits("any.example", "1.1.1.1"));
        for bad in ["", "10.0.0.0/33", "a b", "10.0.0.0/x", "1.2/16", "1.2.3.4.5"] {
            assert!(Inside::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
