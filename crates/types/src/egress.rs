//! What an instance may reach, as those who decide it say it to the machine that sees to it, and
//! what the machine tells of it.

use crate::Timestamp;
use crate::ids::ResourceId;
use crate::instance::InstanceName;
use crate::kinds::network::ProxyTarget;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The rules of one instance. The default is none: the internet, with addresses of the machine.
#[derive(Clone, Default, PartialEq)]
pub struct EgressRules {
    /// If there are any, nothing else is reached. What is here passes, even if it is forbidden as well.
    pub allowed_domains: Vec<String>,
    pub forbidden_domains: Vec<String>,
    /// Reached past all other rules.
    pub bypass: Vec<String>,
    /// What is added to requests, with secrets that are open.
    pub routing: Vec<ProxyTarget>,
    /// Whether what does not ask the proxy is dropped.
    pub proxy_only: bool,
    /// The addresses that its traffic leaves with: at most one of each family.
    pub source: Vec<IpAddr>,
    pub vpc: Option<VpcMember>,
}

/// The place of an instance in a VPC whose members reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VpcMember {
    pub vpc: ResourceId,
    pub vpc_name: String,
    /// What the others call it: `host.vpc_name.internal`.
    pub host: String,
}

/// What is added to requests may be a key, also where it is no secret of a rule.
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
    /// Whether anything is out of reach because of a list.
    pub fn has_lists(&self) -> bool {
        !self.allowed_domains.is_empty() || !self.forbidden_domains.is_empty()
    }

    /// Whether programs inside are told of the proxy.
    pub fn names_proxy(&self) -> bool {
        self.has_lists() || !self.routing.is_empty() || self.proxy_only
    }
}

/// Something that the rules of an instance did. Values are never in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressEvent {
    pub at: Timestamp,
    pub instance: InstanceName,
    pub decision: EgressDecision,
    /// A name, or an address where no name is known.
    pub host: String,
    pub port: u16,
    pub method: Option<String>,
    /// Without a query.
    pub path: Option<String>,
    /// The rule that decided, as it was written, such as `forbiddenDomains: *.example.com`.
    pub rule: String,
    /// What was injected, by name, such as `header authorization` or `secret api-key`.
    pub injected: Vec<String>,
    /// How many such events came before it that are not told, because there were too many.
    pub left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EgressDecision {
    Blocked,
    Injected,
    /// It was allowed, and what is out there could not be reached or trusted.
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
