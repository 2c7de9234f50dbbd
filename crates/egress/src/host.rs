//! Where a connection is to go, as its maker wrote it.

use std::fmt;
use std::net::IpAddr;

/// A name or an address. There is one place that tells them apart, and both rules and connections
/// go by what it says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// In lower case, without a last dot.
    Name(String),
    Address(IpAddr),
}

/// Of the DNS.
const NAME_CHARS_MAX: usize = 253;
const LABEL_CHARS_MAX: usize = 63;

impl Host {
    /// `None` for what is neither, also for addresses in notations that only some programs know, such
    /// as `0x7f.1` or `2130706433`: what one reads as a name another would reach as an address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

    /// An IPv6 address that only wraps an IPv4 one is that one.
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
}
