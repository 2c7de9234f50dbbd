//! Egress rules of an instance, as the control plane sends them to the machine that enforces them,
//! and the events that the machine reports back.

use crate::Timestamp;
use crate::ids::ResourceId;
use crate::instance::InstanceName;
use crate::kinds::network::ProxyTarget;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The header that gives the upstream a unique id for each request.
pub const REQUEST_ID: &str = "x-blaxel-request-id";

/// Headers that say where a message ends and whom it is for. Rules cannot set them.
const FRAMING: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
    "keep-alive",
    "proxy-connection",
    "http2-settings",
];

/// Returns whether a header is among those that say where a message ends and whom it is for.
pub fn is_framing(header: &str) -> bool {
    FRAMING.iter().any(|name| name.eq_ignore_ascii_case(header))
}

/// Returns whether rules can add a header.
pub fn can_add(header: &str) -> bool {
    !is_framing(header) && !REQUEST_ID.eq_ignore_ascii_case(header)
}

/// The egress rules of one instance. By default there are none: the internet can be reached, from
/// the machine's addresses.
#[derive(Clone, Default, PartialEq)]
pub struct EgressRules {
    /// If there are any, nothing else can be reached. They win over `forbidden_domains`.
    pub allowed_domains: Vec<String>,
    pub forbidden_domains: Vec<String>,
    /// Domains that are reached past all other rules.
    pub bypass: Vec<String>,
    /// What is added to requests, with opened secrets.
    pub routing: Vec<ProxyTarget>,
    /// True if traffic that does not use the proxy is dropped.
    pub proxy_only: bool,
    /// Addresses from which its traffic leaves: at most one of each family.
    pub source: Vec<IpAddr>,
    pub vpc: Option<VpcMember>,
}

/// The place of an instance in a VPC whose members can reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VpcMember {
    pub vpc: ResourceId,
    pub vpc_name: String,
    /// Name by which the other members reach it: `host.vpc_name.internal`.
    pub host: String,
}

/// Omits what is added to requests: it may be a key even where it is not declared as a secret.
impl fmt::Debug for EgressRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EgressRules")
            .field("allowed_domains", &self.allowed_domains)
            .field("forbidden_domains", &self.forbidden_domains)
            .field("proxy_only", &self.proxy_only)
            .finish_non_exhaustive()
    }
}

impl EgressRules {
    /// Returns true if a list puts anything out of reach.
    pub fn has_lists(&self) -> bool {
        !self.allowed_domains.is_empty() || !self.forbidden_domains.is_empty()
    }

    /// Returns true if programs in the instance are told about the proxy.
    pub fn names_proxy(&self) -> bool {
        self.has_lists() || !self.routing.is_empty() || self.proxy_only
    }
}

/// Something that the rules of an instance did. It never contains values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressEvent {
    pub at: Timestamp,
    pub instance: InstanceName,
    pub decision: EgressDecision,
    /// A host name, or an address if no name is known.
    pub host: String,
    pub port: u16,
    pub method: Option<String>,
    /// Path without the query.
    pub path: Option<String>,
    /// The rule that decided, as written, such as `forbiddenDomains: *.example.com`.
    pub rule: String,
    /// Names of what was injected, such as `header authorization` or `secret api-key`.
    pub injected: Vec<String>,
    /// Number of similar events before this one that were dropped because there were too many.
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EgressDecision {
    Blocked,
    Injected,
    /// The request was allowed, but its destination could not be reached or trusted.
    Failed,
}

impl EgressDecision {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Injected => "injected",
            Self::Failed => "failed",
        }
    }
}
