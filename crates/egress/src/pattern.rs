//! Parses the entries of lists: `[!]METHOD:…:domain[/path]`, an address, or a range of addresses.

mod paths;

pub(crate) use paths::Paths;

use http::Method;
use paths::pieces;
use std::net::IpAddr;
use types::parts::hosts::Host;

/// One entry. Invalid text becomes a domain that no host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) domain: Domain,
    /// `None` means that the host alone decides.
    pub(crate) condition: Option<Box<Condition>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Domain {
    All,
    /// The subdomains of a name, but not the name itself.
    Below(String),
    Name(String),
    Range(Range),
    Nowhere,
}

/// The addresses whose first `bits` are the same as those of `first`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    first: IpAddr,
    bits: u32,
}

/// What a request must be like, in addition to its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    /// In upper case. Empty means every method.
    methods: Vec<String>,
    /// Whether `methods` are those that do not match.
    is_negated: bool,
    /// The texts between the stars. `None` means every path.
    path: Option<Vec<String>>,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Self {
        Self::parse_known(text).unwrap_or(Self { domain: Domain::Nowhere, condition: None })
    }

    fn parse_known(text: &str) -> Option<Self> {
        let (is_negated, mut rest) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut methods = Vec::new();
        let (domain, path) = loop {
            if let Some(range) = Range::parse(rest) {
                break (Domain::Range(range), None);
            }
            match rest.split_once(':') {
                Some((method, after)) if is_method(method) && !is_port(after) => {
                    methods.push(method.to_ascii_uppercase());
                    rest = after;
                }
                _ => {
                    let slash = rest.find('/').unwrap_or(rest.len());
                    let (host, path) = rest.split_at(slash);
                    break (domain(host)?, (!path.is_empty()).then(|| pieces(path)));
                }
            }
        };
        if is_negated && methods.is_empty() {
            return None;
        }
        let condition = Condition { methods, is_negated, path };
        let condition = (!condition.is_empty()).then(|| Box::new(condition));
        Some(Self { domain, condition })
    }

    /// Tests whether a host matches. Only for tests; policies use an index.
    #[cfg(test)]
    pub(crate) fn is_host(&self, host: &Host) -> bool {
        match (&self.domain, host) {
            (Domain::All, _) => true,
            (Domain::Below(suffix), Host::Name(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|above| above.len() > 1 && above.ends_with('.')),
            (Domain::Name(own), Host::Name(name)) => own == name,
            (Domain::Range(range), Host::Address(address)) => range.holds(*address),
            _ => false,
        }
    }
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-')
}

/// Returns whether the text after a colon is a port, which rules ignore.
fn is_port(text: &str) -> bool {
    let port = text.split('/').next().unwrap_or_default();
    (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn domain(text: &str) -> Option<Domain> {
    let host = match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) && (!host.contains(':') || host.ends_with(']')) => host,
        _ => text,
    };
    if host == "*" {
        return Some(Domain::All);
    }
    if let Some(suffix) = host.strip_prefix("*.") {
        return match Host::parse(suffix)? {
            Host::Name(suffix) => Some(Domain::Below(suffix)),
            Host::Address(_) => None,
        };
    }
    Some(match Host::parse(host)? {
        Host::Name(name) => Domain::Name(name),
        Host::Address(address) => Domain::Range(Range::of(address)),
    })
}

impl Range {
    fn of(address: IpAddr) -> Self {
        Self { first: address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Parses `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    fn parse(text: &str) -> Option<Self> {
        let Some((first, bits)) = text.split_once('/') else {
            return text.parse().ok().map(|address: IpAddr| match address {
                // Hosts never have the IPv4-mapped form.
                IpAddr::V6(v6) => Self::of(v6.to_ipv4_mapped().map_or(address, IpAddr::V4)),
                IpAddr::V4(_) => Self::of(address),
            });
        };
        let is_number = (1..=3).contains(&bits.len()) && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u32 = is_number.then(|| bits.parse().ok()).flatten()?;
        match first.parse().ok()? {
            IpAddr::V4(first) if bits <= 32 => Some(Self { first: first.into(), bits }),
            IpAddr::V6(first) => match first.to_ipv4_mapped() {
                Some(v4) if (96..=128).contains(&bits) => {
                    Some(Self { first: v4.into(), bits: bits - 96 })
                }
                None if bits <= 128 => Some(Self { first: first.into(), bits }),
                _ => None,
            },
            IpAddr::V4(_) => None,
        }
    }

    pub(crate) fn holds(&self, address: IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl Condition {
    fn is_empty(&self) -> bool {
        self.methods.is_empty() && self.path.is_none()
    }

    /// Returns whether a request matches in any reading of its path, as far as that is known.
    pub(crate) fn may_match(&self, method: &Method, paths: &Paths) -> bool {
        self.is_method(method) && self.path.as_ref().is_none_or(|path| paths.may_match(path))
    }

    /// Returns whether a request certainly matches in every reading of its path.
    pub(crate) fn must_match(&self, method: &Method, paths: &Paths) -> bool {
        self.is_method(method) && self.path.as_ref().is_none_or(|path| paths.must_match(path))
    }

    fn is_method(&self, method: &Method) -> bool {
        let listed = |own: &String| own.eq_ignore_ascii_case(method.as_str());
        self.methods.is_empty() || self.methods.iter().any(listed) != self.is_negated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, method: &str, host: &str, path: &str) -> bool {
        let pattern = Pattern::parse(pattern);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let paths = Paths::of(path);
        pattern.is_host(&Host::parse(host).unwrap())
            && pattern.condition.is_none_or(|condition| condition.must_match(&method, &paths))
    }

    #[test]
    fn hosts() {
        for (pattern, host, wanted) in [
            ("example.com", "example.com", true),
            ("Example.COM.", "example.com", true),
            ("example.com:8443", "example.com", true),
            ("example.com", "a.example.com", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.b.example.com", true),
            ("*.example.com", "example.com", false),
            ("*.example.com", "aexample.com", false),
            ("*.com", "example.com", true),
            ("*", "example.com", true),
            ("*", "10.1.2.3", true),
            ("*:443", "example.com", true),
            ("*.3", "10.1.2.3", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3:80", "10.1.2.3", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("0.0.0.0/0", "11.1.2.3", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8::1", true),
            ("2001:db8::1", "2001:db8::1", true),
            ("[2001:db8::1]:443", "2001:db8::1", true),
            ("GET:[2001:db8::1]:443/a", "2001:db8::1", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.1.2.3", "10.1.2.3", true),
            ("10.0.0.0/33", "10.1.2.3", false),
            ("10.0.0.0/+8", "10.1.2.3", false),
            ("https://example.com", "example.com", false),
            ("!example.com", "example.com", false),
            ("a*.example.com", "ab.example.com", false),
            ("", "example.com", false),
            ("localhost:8080", "localhost", true),
        ] {
            assert_eq!(matches(pattern, "PUT", host, "/"), wanted, "{pattern} {host}");
        }
    }

    #[test]
    fn methods_and_paths() {
        for (pattern, method, path, wanted) in [
            ("GET:a.b", "GET", "/", true),
            ("get:a.b", "GET", "/", true),
            ("GET:POST:a.b", "POST", "/x", true),
            ("GET:POST:a.b", "PUT", "/x", false),
            ("!GET:POST:a.b", "PUT", "/x", true),
            ("!GET:POST:a.b", "GET", "/x", false),
            ("GET:a.b:443/v1", "GET", "/v1/x", true),
            ("a.b/v1", "GET", "/v1", true),
            ("a.b/v1", "GET", "/v12", true),
            ("a.b/v1/", "GET", "/v12", false),
            ("a.b/v1", "GET", "/V1", false),
            ("a.b/v1", "GET", "/x/v1", false),
            ("a.b/v1", "GET", "/v1?x=/../..", true),
            ("a.b/v1", "GET", "/?x=/v1", false),
            ("a.b/v1", "GET", "//v1", true),
            ("a.b/v1", "GET", "/./v1", true),
            ("a.b/v1", "GET", "/v2/../v1/x", true),
            ("a.b/v1", "GET", "/v1/../v2", false),
            ("a.b/v1", "GET", "/v1/%2e%2E/v2", false),
            ("a.b/v1", "GET", "/v1/..%2fv2", false),
            ("a.b/v1", "GET", "/v1/..%252fv2", false),
            ("a.b/v1", "GET", "/v1/..\\v2", false),
            ("a.b/v1", "GET", "/v1/..;x/v2", false),
            ("a.b/v1", "GET", "/%76%31", true),
            ("a.b/*/x", "GET", "/1/2/x/y", true),
            ("a.b/*/x", "GET", "/1/2/y", false),
            ("a.b/a*b*c", "GET", "/a1c2b3c", true),
            ("a.b/a*b*c", "GET", "/a1c2b3", false),
            ("a.b/", "GET", "/", true),
            ("a.b/%2E%2e/x", "GET", "/x", true),
        ] {
            assert_eq!(matches(pattern, method, "a.b", path), wanted, "{pattern} {method} {path}");
        }
    }
}
