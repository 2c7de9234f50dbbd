//! The one parser of where a request wants to go.
//!
//! Paths are taken as they were sent: nothing is decoded, joined or tidied, so that what is checked
//! here and what the workload reads are the same bytes. What is not written exactly as it should be
//! leads nowhere.

use http::header::HOST;
use http::{HeaderMap, Uri};
use std::borrow::Cow;

/// First parts of paths of the management interface; no workspace has such a name.
const MANAGEMENT: [&str; 2] = ["v0", "api"];
/// In front of the label of a preview where there are no host names to put it in.
const BY_PATH: &str = "/-/";
const PREVIEW: &str = ".preview";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address<'r> {
    pub(crate) place: Place<'r>,
    /// The path behind what names the place, as it was sent: empty or beginning with `/`.
    pub(crate) rest: &'r str,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place<'r> {
    /// `/{workspace}/sandboxes/{name}`
    Sandbox { workspace: &'r str, name: &'r str },
    /// `sbx-{name}-{workspace}`: whose it is, the routes know.
    Label(Cow<'r, str>),
    /// A preview by its label. `root` is the path under which it answers.
    Preview { label: Cow<'r, str>, root: &'r str },
    /// A host of somebody's own domain.
    Host(Cow<'r, str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("the request must name one host, as `name` or `name:port`")]
    Host,
    #[error("the path must begin with `/`")]
    Path,
    #[error("a port is a number from 1 to 65535, without leading zeros")]
    Port,
}

impl<'r> Address<'r> {
    /// `None`: the request is not for the data plane. `is_known` tells hosts of previews and custom
    /// domains.
    pub(crate) fn parse(
        uri: &'r Uri,
        headers: &'r HeaderMap,
        domains: &[String],
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, BadAddress> {
        let host = host(uri, headers)?;
        let path = uri.path();
        let place = match host {
            None => None,
            Some(host) => match domains.iter().find_map(|domain| below(&host, domain)) {
                Some(front) => by_host(host, front),
                None => is_known(&host).then_some(Place::Host(host)),
            },
        };
        match place {
            Some(_) if !path.starts_with('/') => Err(BadAddress::Path),
            Some(place) => Ok(Some(Self { place, rest: path })),
            None => Ok(by_path(path)),
        }
    }
}

/// The host in lower case, without port. HTTP/2 and absolute forms name it in the URI.
pub(crate) fn host<'r>(
    uri: &'r Uri,
    headers: &'r HeaderMap,
) -> Result<Option<Cow<'r, str>>, BadAddress> {
    let mut all = headers.get_all(HOST).iter();
    let header = match (all.next(), all.next()) {
        (None, _) => None,
        (Some(host), None) => Some(host.to_str().map_err(|_| BadAddress::Host)?),
        (Some(_), Some(_)) => return Err(BadAddress::Host),
    };
    let named = match (uri.authority(), header) {
        // Two different hosts are two different readers' truths.
        (Some(authority), Some(header)) if !header.eq_ignore_ascii_case(authority.as_str()) => {
            return Err(BadAddress::Host);
        }
        (Some(authority), _) => authority.as_str(),
        (None, Some(header)) => header,
        (None, None) => return Ok(None),
    };
    let name = without_port(named).ok_or(BadAddress::Host)?;
    let name = name.strip_suffix('.').unwrap_or(name);
    let upper = name.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(Some(if upper { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) }))
}

fn without_port(host: &str) -> Option<&str> {
    let (name, port) = match host.rsplit_once(':') {
        // The colons of an IPv6 address are within its brackets.
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let bracketed = name.starts_with('[') && name.ends_with(']');
    let is_name = bracketed || name.bytes().all(plain);
    (is_name && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// The labels in front of the domain: `a.b` of `a.b.holm.example`.
fn below(host: &str, domain: &str) -> Option<usize> {
    let front = host.strip_suffix(domain)?;
    (front.is_empty() || front.ends_with('.')).then(|| front.len().saturating_sub(1))
}

/// `front` is the length of the labels in front of the server's own name.
fn by_host(host: Cow<'_, str>, front: usize) -> Option<Place<'_>> {
    let labels = &host[..front];
    if let Some(label) = labels.strip_suffix(PREVIEW).filter(|label| !label.contains('.')) {
        let length = label.len();
        return Some(Place::Preview { label: cut(host, 0, length), root: "/" });
    }
    // `sbx-name-workspace.region`, where the region says nothing that the routes do not know.
    let label = labels.split_once('.').map_or(labels, |(label, _)| label);
    let regions = labels.len() - label.len();
    let one_region = regions == 0 || !labels[label.len() + 1..].contains('.');
    let named = label.strip_prefix("sbx-").filter(|_| one_region)?.len();
    let end = label.len();
    Some(Place::Label(cut(host, end - named, end)))
}

fn cut(text: Cow<'_, str>, from: usize, to: usize) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[from..to]),
        Cow::Owned(text) => Cow::Owned(text[from..to].to_owned()),
    }
}

fn by_path(path: &str) -> Option<Address<'_>> {
    if let Some(behind) = path.strip_prefix(BY_PATH) {
        let (segment, rest) = segment(behind);
        let label = segment.strip_suffix(PREVIEW).filter(|label| is_label(label))?;
        let root = &path[..path.len() - rest.len()];
        return Some(Address { place: Place::Preview { label: label.into(), root }, rest });
    }
    sandbox_path(path).or_else(|| sandbox_path(path.strip_prefix("/run")?))
}

/// What could be in front of a host name, to which such a path may be sent on.
fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// `/{workspace}/sandboxes/{name}` and what follows.
fn sandbox_path(path: &str) -> Option<Address<'_>> {
    let (workspace, behind) = segment(path.strip_prefix('/')?);
    let (name, rest) = segment(behind.strip_prefix("/sandboxes/")?);
    let named = !workspace.is_empty() && !name.is_empty() && !MANAGEMENT.contains(&workspace);
    named.then_some(Address { place: Place::Sandbox { workspace, name }, rest })
}

/// Up to the next slash, and the rest with it.
fn segment(path: &str) -> (&str, &str) {
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// Which port the rest of a path below a sandbox leads to, and what the workload there is asked
/// for.
pub(crate) fn port_of(rest: &str, guest: u16) -> Result<(u16, &str), BadAddress> {
    let Some(behind) = rest.strip_prefix("/port/") else { return Ok((guest, rest)) };
    let (digits, rest) = segment(behind);
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|_| plain).ok_or(BadAddress::Port)?;
    Ok((port, rest))
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
