//! What a sandbox may reach, and how.

use crate::Problems;
use crate::parts::{Sensitive, TextMap, limits, names, visit_map};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxNetwork {
    /// The older place of `proxy.allowedDomains`.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub allowed_domains: Option<Vec<String>>,
    pub egress: Option<EgressConfig>,
    pub firewall: Option<FirewallConfig>,
    /// The older place of `proxy.forbiddenDomains`.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub forbidden_domains: Option<Vec<String>>,
    /// Present, even if empty: all traffic goes through the proxy. It may be turned on and off in place.
    pub proxy: Option<ProxyConfig>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub subnet: Option<String>,
}

/// Traffic that leaves with an address of its own.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressConfig {
    #[schemars(length(max = 49))]
    pub gateway: Option<String>,
    /// `dedicated`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub mode: Option<String>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub policies: Option<Vec<EgressPolicy>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EgressPolicy {
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub destinations: Option<Vec<String>>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub mode: Option<String>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub name: Option<String>,
}

/// A ready-made set of packet rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ruleset {
    Default,
    Proxy,
    DedicatedIp,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FirewallConfig {
    #[schemars(length(max = limits::LIST_MAX))]
    pub rulesets: Option<Vec<Ruleset>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyConfig {
    /// If there are any, only these are reached.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub allowed_domains: Option<Vec<String>>,
    /// These are reached without the proxy.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub bypass: Option<Vec<String>>,
    /// These are not reached. What `allowedDomains` lists as well passes.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub forbidden_domains: Option<Vec<String>>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub routing: Option<Vec<ProxyTarget>>,
}

/// What the proxy adds to requests to some destinations.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyTarget {
    #[schemars(schema_with = "limits::text_map")]
    pub body: Option<TextMap>,
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub destinations: Option<Vec<String>>,
    #[schemars(schema_with = "limits::text_map")]
    pub headers: Option<TextMap>,
    /// Values for `{{SECRET:name}}`. Only the answer to the creation shows them.
    #[schemars(schema_with = "limits::text_map")]
    pub secrets: Option<Sensitive<TextMap>>,
}

impl SandboxNetwork {
    /// Whether it asks for anything beyond the usual way out.
    pub fn has_rules(&self) -> bool {
        let domains = [&self.allowed_domains, &self.forbidden_domains];
        let listed = domains
            .iter()
            .any(|domains| domains.as_ref().is_some_and(|domains| !domains.is_empty()));
        listed || self.proxy.is_some() || self.egress.is_some() || self.firewall.is_some()
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        for (index, target) in self.targets().iter().enumerate() {
            let at = format!("spec.network.proxy.routing[{index}]");
            problems.require(
                target.destinations.is_some(),
                format!("{at}.destinations"),
                "is required",
            );
            names::check_headers(target.headers.as_ref(), &format!("{at}.headers"), problems);
        }
        let dedicated =
            self.egress.as_ref().is_some_and(|egress| egress.mode.as_deref() == Some("dedicated"));
        let gateway =
            self.egress.as_ref().and_then(|egress| egress.gateway.as_deref()).unwrap_or_default();
        problems.require(
            !dedicated || !gateway.is_empty(),
            "spec.network.egress.gateway",
            "is required for the mode `dedicated`",
        );
    }

    /// Answers leave secrets out, so a caller that changes something else sends its rules back without them. A rule that is
    /// otherwise the same keeps its secrets; one that changed needs them again.
    pub(super) fn keep_secrets(&mut self, old: &Self) {
        let rule = |target: &ProxyTarget| ProxyTarget { secrets: None, ..target.clone() };
        for target in self.targets_mut().filter(|target| target.secrets.is_none()) {
            let same = old.targets().iter().find(|old| rule(old) == *target);
            target.secrets = same.and_then(|old| old.secrets.clone());
        }
    }

    pub(super) fn leave_out_secrets(&mut self) {
        self.targets_mut().for_each(|target| target.secrets = None);
    }

    fn targets_mut(&mut self) -> impl Iterator<Item = &mut ProxyTarget> {
        self.proxy.iter_mut().flat_map(|proxy| proxy.routing.iter_mut().flatten())
    }

    fn targets(&self) -> &[ProxyTarget] {
        self.proxy.as_ref().and_then(|proxy| proxy.routing.as_deref()).unwrap_or_default()
    }

    pub(super) fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        for (index, target) in self.targets_mut().enumerate() {
            let secrets = target.secrets.as_mut().map(|Sensitive(secrets)| secrets);
            visit_map(secrets, &format!("network.proxy.routing.{index}.secrets"), visit);
        }
    }
}
