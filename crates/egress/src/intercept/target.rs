//! Finds out which host a request is for. The request says so itself, not the connection it came
//! on.

use super::refusal::Refusal;
use http::request::Parts;
use http::uri::{Authority, Scheme};
use http::{Version, header};
use std::net::IpAddr;
use types::parts::hosts::Host;

/// The destination of a connection.
#[derive(Debug, Clone)]
pub(crate) struct To {
    pub(crate) host: Host,
    /// The hosts that the rules apply to: the host itself, or the names that its address was given
    /// out for.
    pub(crate) names: Vec<Host>,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}

impl To {
    pub(super) fn scheme(&self) -> Scheme {
        if self.is_tls { Scheme::HTTPS } else { Scheme::HTTP }
    }
}

/// The host that one request is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) is_tls: bool,
    /// The authority to send: it has a port only if the program gave one.
    pub(super) authority: String,
}

impl Target {
    /// Reads the target of a request. `to` is where its connection leads, if that is fixed.
    pub(super) fn of(parts: &Parts, to: Option<&To>, scheme: &Scheme) -> Result<Self, Refusal> {
        let is_tls = *scheme == Scheme::HTTPS;
        let Some(authority) = authority(parts)? else {
            return match to {
                Some(to) if parts.version == Version::HTTP_10 => {
                    let To { host, port, .. } = to.clone();
                    let authority = written(&host, None);
                    Ok(Self { host, port, is_tls, authority })
                }
                _ => Err(Refusal::BadRequest("it does not say which host it is for")),
            };
        };
        let said = authority.as_str();
        let host = Host::parse(authority.host()).filter(|_| !said.contains('@'));
        let host = host.ok_or(Refusal::BadRequest("its host is neither a name nor an address"))?;
        let port_text = said.get(authority.host().len() + 1..).filter(|text| !text.is_empty());
        let port = authority.port_u16();
        if port.is_none() && port_text.is_some() {
            return Err(Refusal::BadRequest("its port is no number"));
        }
        let written = written(&host, port);
        let port = match to {
            Some(to) if to.host == host || (to.is_tls && to.names.contains(&host)) => to.port,
            Some(to) if to.is_tls => return Err(Refusal::Misdirected { host: to.host.clone() }),
            Some(to) => port.unwrap_or(to.port),
            None => port.unwrap_or(if is_tls { 443 } else { 80 }),
        };
        Ok(Self { host, port, is_tls, authority: written })
    }
}

/// Returns the authority in the request's URI, or else its `Host` header. A header in addition to
/// the URI is ignored, and never sent on.
fn authority(parts: &Parts) -> Result<Option<Authority>, Refusal> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::BadRequest("it has more than one Host header"));
    }
    if let Some(authority) = parts.uri.authority() {
        return Ok(Some(authority.clone()));
    }
    let Some(host) = host else { return Ok(None) };
    Authority::try_from(host.as_bytes())
        .map(Some)
        .map_err(|_| Refusal::BadRequest("its Host header names no host"))
}

fn written(host: &Host, port: Option<u16>) -> String {
    let host = match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        other => other.to_string(),
    };
    port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use proptest::prelude::*;

    fn parts(version: Version, uri: &str, hosts: &[&str]) -> Option<Parts> {
        let request = Request::builder().version(version).uri(uri);
        let request = hosts.iter().fold(request, |request, host| request.header("host", *host));
        request.body(()).ok().map(|request| request.into_parts().0)
    }

    #[test]
    fn the_request_says_whom_it_is_for() {
        let named = |host: &str, names: &[&str], is_tls| To {
            host: Host::parse(host).unwrap(),
            names: names.iter().map(|name| Host::parse(name).unwrap()).collect(),
            port: 8443,
            is_tls,
        };
        let to = |is_tls| named("a.b", &["a.b"], is_tls);
        let unnamed = named("192.0.2.1", &["a.b", "e.f"], true);
        let v1 = Version::HTTP_11;
        let of = |parts: &Parts, to: Option<&To>| {
            let target = Target::of(parts, to, &Scheme::HTTP);
            target.map(|it| (it.host.to_string(), it.port, it.authority)).ok()
        };
        let is = |host: &str, port: u16, authority: &str| {
            Some((host.to_owned(), port, authority.to_owned()))
        };
        let (plain, tls) = (to(false), to(true));
        for (uri, hosts, to, wanted) in [
            ("/", &["A.b"][..], Some(&tls), is("a.b", 8443, "a.b")),
            ("/", &["a.b:99"], Some(&tls), is("a.b", 8443, "a.b:99")),
            ("/", &["c.d"], Some(&tls), None),
            // TLS to an address without a name: also for the names that it was given out for.
            ("/", &["192.0.2.1"], Some(&unnamed), is("192.0.2.1", 8443, "192.0.2.1")),
            ("/", &["e.f:99"], Some(&unnamed), is("e.f", 8443, "e.f:99")),
            ("/", &["c.d"], Some(&unnamed), None),
            ("/", &["c.d"], Some(&plain), is("c.d", 8443, "c.d")),
            ("/", &["c.d:81"], Some(&plain), is("c.d", 81, "c.d:81")),
            // The request's URI counts, not the header next to it.
            ("http://c.d/x", &["a.b"], Some(&tls), None),
            ("http://a.b/x", &["c.d"], Some(&tls), is("a.b", 8443, "a.b")),
            ("http://c.d/x", &["a.b"], None, is("c.d", 80, "c.d")),
            ("http://[::1]:81/x", &[], None, is("::1", 81, "[::1]:81")),
            ("http://[::ffff:1.2.3.4]/", &[], None, is("1.2.3.4", 80, "1.2.3.4")),
            ("/", &["a.b", "a.b"], Some(&tls), None),
            ("/", &["a.b", "c.d"], Some(&plain), None),
            ("/", &[], Some(&plain), None),
            ("/", &[""], Some(&plain), None),
            ("/", &["a.b,c.d"], Some(&plain), None),
            ("/", &["a.b c.d"], Some(&plain), None),
            ("/", &["a.b/c"], Some(&plain), None),
            ("/", &["a.b:x"], Some(&plain), None),
            ("/", &["a.b:99999"], Some(&plain), None),
            ("/", &["u@a.b"], Some(&tls), None),
            ("/", &["0x7f.1"], Some(&plain), None),
            ("/", &["2130706433"], Some(&plain), None),
            ("http://u:p@c.d/", &[], None, None),
        ] {
            let given = parts(v1, uri, hosts).and_then(|parts| of(&parts, to));
            assert_eq!(given, wanted, "{uri} {hosts:?}");
        }
        let old = parts(Version::HTTP_10, "/", &[]).unwrap();
        assert_eq!(of(&old, Some(&tls)), is("a.b", 8443, "a.b"));
        assert_eq!(of(&old, None), None);
    }

    proptest! {
        #[test]
        fn what_is_sent_names_the_host_that_was_judged(host in "[a-zA-Z0-9.:@\\[\\]%_,-]{0,24}") {
            let parts = parts(Version::HTTP_11, "/", &[&host]).unwrap();
            if let Ok(target) = Target::of(&parts, None, &Scheme::HTTP) {
                let sent = Authority::try_from(target.authority.as_str()).unwrap();
                prop_assert_eq!(Host::parse(sent.host()), Some(target.host));
            }
        }
    }
}
