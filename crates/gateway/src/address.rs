//! The only code that parses where a request wants to go.
//!
//! Paths are taken as they were sent: nothing is decoded, joined or tidied, so that what is checked
//! here and what the workload reads are the same bytes. A path that is not written exactly as it
//! should be leads nowhere.

use crate::query;
use http::header::HOST;
use http::{HeaderMap, Uri};
use std::borrow::Cow;
use types::KindName;
use types::edge::WORKLOADS;

/// First segments of paths of the management interface; no workspace can have one as its name.
const MANAGEMENT: [&str; 3] = ["v0", "v2", "api"];
/// Comes before the label of a preview or an application where it cannot be part of a host name.
const BY_PATH: &str = "/-/";
const PREVIEW: &str = ".preview";
/// The published clients may put this before a path.
const RUN: &str = "/run";
/// Path at which the program of an MCP server answers.
const MCP: &str = "/mcp";
/// Query parameter of callers that do not wait for the answer.
const LATER: &str = "async";

/// Where a request goes, by its host and its path. Made once for each request: the code that checks
/// it, routes it or judges its origin reads this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) endpoint: Endpoint,
    /// Length of the part of the path that names the endpoint.
    prefix: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// `/{workspace}/sandboxes/{name}`, or the plural of another kind
    Workload { kind: KindName, workspace: String, name: String },
    /// `sbx-{name}-{workspace}`, or with the prefix of another kind; the routes know which workload
    /// it is. At a host of its own or, for kinds without paths below the workspace, by path.
    Label { kind: KindName, label: String, by_path: bool },
    /// A preview by its label, at a host of its own or by path.
    Preview { label: String, by_path: bool },
    /// A host below a custom domain.
    Host(String),
    /// The path of a trigger, starting with the workspace's name.
    Trigger(String),
    /// `/{workspace}/models/{name}`
    Model { workspace: String, name: String },
}

/// What the parser asks of the routes.
pub(crate) trait Known {
    /// Returns whether it is the host of a preview, a workload or a custom domain.
    fn host(&self, host: &str) -> bool;
    /// Returns whether the callers of the trigger at this path wait. `None` means there is no
    /// trigger.
    fn trigger(&self, path: &str) -> Option<bool>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    #[error("the request must name one host, as `name` or `name:port`")]
    Host,
    #[error("the path must begin with `/`")]
    Path,
    #[error("a port is a number from 1 to 65535, without leading zeros")]
    Port,
}

impl Address {
    /// Returns whether it is that of a model, whose requests are read before they are passed on.
    pub const fn is_of_model(&self) -> bool {
        matches!(self.endpoint, Endpoint::Model { .. })
    }

    /// Parses the address. `None` means the request is not for the data plane, which includes calls
    /// whose callers do not wait: the management side takes those.
    pub(crate) fn parse(
        uri: &Uri,
        headers: &HeaderMap,
        domains: &[String],
        known: &impl Known,
    ) -> Result<Option<Self>, BadAddress> {
        let Some(host) = host(uri, headers)? else { return Ok(by_path(uri, known)) };
        let endpoint = match domains.iter().find_map(|domain| below(&host, domain)) {
            Some(labels) => by_host(labels),
            None => known.host(&host).then(|| Endpoint::Host(host.clone().into_owned())),
        };
        match endpoint {
            Some(_) if !uri.path().starts_with('/') => Err(BadAddress::Path),
            Some(endpoint) => Ok(Some(Self { endpoint, prefix: 0 })),
            None => Ok(by_path(uri, known)),
        }
    }

    /// Splits the path as it was sent into the part that names the endpoint, and the rest, which is
    /// empty or begins with `/`. `uri` must be the one that was parsed.
    pub(crate) fn split<'u>(&self, uri: &'u Uri) -> (&'u str, &'u str) {
        uri.path().split_at(self.prefix)
    }
}

/// Returns the host in lower case, without its port. HTTP/2 and absolute forms name it in the URI.
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Result<Option<Cow<'r, str>>, BadAddress> {
    let mut all = headers.get_all(HOST).iter();
    let header = match (all.next(), all.next()) {
        (None, _) => None,
        (Some(host), None) => Some(host.to_str().map_err(|_| BadAddress::Host)?),
        (Some(_), Some(_)) => return Err(BadAddress::Host),
    };
    let named = match (uri.authority(), header) {
        // One reader would believe the URI, another the header.
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

/// Returns the labels before the domain: `a.b` for `a.b.holm.example`.
fn below<'h>(host: &'h str, domain: &str) -> Option<&'h str> {
    let front = host.strip_suffix(domain)?;
    if front.is_empty() { Some(front) } else { front.strip_suffix('.') }
}

/// Reads the labels that come before the server's own name.
fn by_host(labels: &str) -> Option<Endpoint> {
    if let Some(label) = labels.strip_suffix(PREVIEW).filter(|label| !label.contains('.')) {
        return Some(Endpoint::Preview { label: label.to_owned(), by_path: false });
    }
    // `sbx-name-workspace.region`; the region is ignored, since the routes know it already.
    let (label, region) = labels.split_once('.').unwrap_or((labels, ""));
    if region.contains('.') {
        return None;
    }
    labelled(label, false)
}

/// Reads a kind's prefix and a label, as they begin a host name.
fn labelled(text: &str, by_path: bool) -> Option<Endpoint> {
    WORKLOADS.iter().filter(|workload| !(by_path && workload.by_path)).find_map(|workload| {
        let label = text.strip_prefix(workload.host_prefix)?.to_owned();
        Some(Endpoint::Label { kind: workload.kind, label, by_path })
    })
}

/// Returns what comes before the server's own name in the host of a labelled workload.
pub(crate) fn host_front(kind: KindName, label: &str) -> Option<String> {
    let workload = WORKLOADS.iter().find(|workload| workload.kind == kind)?;
    Some(format!("{}{label}", workload.host_prefix))
}

fn by_path(uri: &Uri, known: &impl Known) -> Option<Address> {
    let path = uri.path();
    if let Some(behind) = path.strip_prefix(BY_PATH) {
        let (endpoint, rest) = label_path(behind)?;
        return Some(Address { endpoint, prefix: path.len() - rest.len() });
    }
    let model = model_path(path).or_else(|| model_path(path.strip_prefix(RUN)?));
    if let Some((endpoint, rest)) = model {
        return Some(Address { endpoint, prefix: path.len() - rest.len() });
    }
    let found = workload_path(path).or_else(|| workload_path(path.strip_prefix(RUN)?));
    let kind = found.as_ref().and_then(|(endpoint, _)| match endpoint {
        Endpoint::Workload { kind, .. } => Some(*kind),
        _ => None,
    });
    if kind != Some(KindName::Sandbox) {
        if let Some((trigger, waits)) = trigger_path(path, known) {
            let endpoint = Endpoint::Trigger(trigger.to_owned());
            let prefix = path.len() - seen_of_trigger(found.as_ref()).len();
            return waits.then_some(Address { endpoint, prefix });
        }
        if query::values(uri.query(), LATER).any(|value| value == "true") {
            return None;
        }
    }
    let (endpoint, rest) = found?;
    Some(Address { endpoint, prefix: path.len() - rest.len() })
}

/// Returns the path of a trigger, starting with the workspace's name, and whether its callers wait.
fn trigger_path<'p>(path: &'p str, known: &impl Known) -> Option<(&'p str, bool)> {
    let plain = path.strip_prefix('/')?;
    let behind_run = || path.strip_prefix(RUN)?.strip_prefix('/');
    let find = |path: &'p str| known.trigger(path).map(|waits| (path, waits));
    find(plain).or_else(|| find(behind_run()?))
}

/// Returns what the program sees of a trigger's path, given the workload that has the path without
/// it: nothing. But where an MCP server answers, a trigger only decides who may call, such as
/// everybody.
fn seen_of_trigger<'p>(found: Option<&(Endpoint, &'p str)>) -> &'p str {
    match found {
        Some((Endpoint::Workload { kind: KindName::Function, .. }, rest)) if *rest == MCP => rest,
        _ => "",
    }
}

/// Reads `{label}.preview` or `app-{label}`, and returns it with the rest of the path.
fn label_path(path: &str) -> Option<(Endpoint, &str)> {
    let (segment, rest) = segment(path);
    let endpoint = match segment.strip_suffix(PREVIEW) {
        Some(label) if is_label(label) => {
            Endpoint::Preview { label: label.to_owned(), by_path: true }
        }
        Some(_) => return None,
        None => labelled(segment, true).filter(|_| is_label(segment))?,
    };
    Some((endpoint, rest))
}

/// Returns whether the text could begin a host name, since such a path may be redirected to that
/// host.
fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Reads `/{workspace}/sandboxes/{name}`, and returns it with the rest of the path.
fn workload_path(path: &str) -> Option<(Endpoint, &str)> {
    let (workspace, kind, name, rest) = named_path(path)?;
    let mut by_path = WORKLOADS.iter().filter(|workload| workload.by_path);
    let kind = by_path.find(|workload| workload.kind.plural() == kind)?.kind;
    let (workspace, name) = (workspace.to_owned(), name.to_owned());
    Some((Endpoint::Workload { kind, workspace, name }, rest))
}

/// Reads the path of a model. Models have no instance and no host of their own, and cannot be
/// called asynchronously.
fn model_path(path: &str) -> Option<(Endpoint, &str)> {
    let (workspace, kind, name, rest) = named_path(path)?;
    let (workspace, name) = (workspace.to_owned(), name.to_owned());
    (kind == KindName::Model.plural()).then_some((Endpoint::Model { workspace, name }, rest))
}

/// Splits a path into `/{workspace}/{plural of a kind}/{name}` and the rest.
fn named_path(path: &str) -> Option<(&str, &str, &str, &str)> {
    let (workspace, behind) = segment(path.strip_prefix('/')?);
    let (kind, behind) = segment(behind.strip_prefix('/')?);
    let (name, rest) = segment(behind.strip_prefix('/')?);
    let is_named = !workspace.is_empty() && !name.is_empty() && !MANAGEMENT.contains(&workspace);
    is_named.then_some((workspace, kind, name, rest))
}

/// Splits a path at the next slash, which stays with the rest.
fn segment(path: &str) -> (&str, &str) {
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// Returns the port that the rest of a workload's path leads to, and the path requested there.
pub(crate) fn port_of(rest: &str, guest: u16) -> Result<(u16, &str), BadAddress> {
    let Some(behind) = rest.strip_prefix("/port/") else { return Ok((guest, rest)) };
    let (digits, rest) = segment(behind);
    let plain = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.parse().ok().filter(|_| plain).ok_or(BadAddress::Port)?;
    Ok((port, rest))
}

#[cfg(test)]
#[path = "address_tests.rs"]
pub(crate) mod tests;
