//! What a workload may reach over the network, and how.

use crate::Problems;
use crate::egress::{self, EgressRules};
use crate::parts::{MASK, Sensitive, TextMap, limits, names, visit_map};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::HashSet;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SandboxNetwork")]
pub struct Network {
    /// Older place of `proxy.allowedDomains`.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub allowed_domains: Option<Vec<String>>,
    pub egress: Option<EgressConfig>,
    pub firewall: Option<FirewallConfig>,
    /// Older place of `proxy.forbiddenDomains`.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub forbidden_domains: Option<Vec<String>>,
    /// If present, even empty, all traffic goes through the proxy. Can be added and removed while
    /// the workload runs.
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
    /// The only value is `dedicated`.
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
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
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
    /// Domains that can be reached. If there are any, no other can.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub allowed_domains: Option<Vec<String>>,
    /// Domains that are reached without the proxy.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub bypass: Option<Vec<String>>,
    /// Domains that cannot be reached, unless `allowedDomains` lists them too.
    #[schemars(length(max = limits::RULES_MAX), inner(length(max = limits::WORD_MAX)))]
    pub forbidden_domains: Option<Vec<String>>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub routing: Option<Vec<ProxyTarget>>,
}

/// Headers and body members that the proxy adds to requests to some destinations.
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
    /// Values for `{{SECRET:name}}`. Shown only in the answer to the creation.
    #[schemars(schema_with = "limits::text_map")]
    pub secrets: Option<Sensitive<TextMap>>,
}

/// The only mode of [`EgressConfig`].
const DEDICATED: &str = "dedicated";

impl Network {
    /// Returns the rules for the machine, without the addresses and neighbours that only other rows
    /// know. Secrets must have been opened.
    pub fn rules(&self) -> EgressRules {
        let none = ProxyConfig::default();
        let proxy = self.proxy.as_ref().unwrap_or(&none);
        EgressRules {
            allowed_domains: joined(&self.allowed_domains, &proxy.allowed_domains),
            forbidden_domains: joined(&self.forbidden_domains, &proxy.forbidden_domains),
            bypass: joined(&None, &proxy.bypass),
            routing: self.targets().to_vec(),
            proxy_only: self.has_ruleset(Ruleset::Proxy),
            ..EgressRules::default()
        }
    }

    /// Returns the gateway from whose addresses the traffic leaves.
    pub fn gateway(&self) -> Option<&str> {
        self.egress.as_ref()?.gateway.as_deref().filter(|gateway| !gateway.is_empty())
    }

    pub fn has_ruleset(&self, wanted: Ruleset) -> bool {
        let rulesets = self.firewall.as_ref().and_then(|firewall| firewall.rulesets.as_ref());
        rulesets.is_some_and(|rulesets| rulesets.contains(&wanted))
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        let mut patterns = 0;
        for (at, list) in self.lists() {
            check_patterns(&at, list, problems);
            patterns += list.len();
        }
        for (index, target) in self.targets().iter().enumerate() {
            let at = format!("spec.network.proxy.routing[{index}]");
            let listed = target.destinations.as_ref().is_some_and(|all| !all.is_empty());
            problems.require(listed, format!("{at}.destinations"), "is required");
            target.check_headers(&format!("{at}.headers"), problems);
            target.check_secrets(&format!("{at}.secrets"), problems);
        }
        problems.require(
            patterns <= limits::RULES_ALL_MAX,
            "spec.network",
            format!(
                "has {patterns} patterns in all its lists; {} are allowed",
                limits::RULES_ALL_MAX
            ),
        );
        self.check_egress(problems);
    }

    fn check_egress(&self, problems: &mut Problems) {
        let none = EgressConfig::default();
        let egress = self.egress.as_ref().unwrap_or(&none);
        let mode = egress.mode.as_deref().unwrap_or_default();
        problems.require(
            matches!(mode, "" | DEDICATED),
            "spec.network.egress.mode",
            format!("must be `{DEDICATED}`"),
        );
        problems.require(
            mode != DEDICATED || self.gateway().is_some(),
            "spec.network.egress.gateway",
            "is required for the mode `dedicated`",
        );
        problems.require(
            egress.policies.as_ref().is_none_or(Vec::is_empty),
            "spec.network.egress.policies",
            "is not supported: all traffic leaves with the addresses of the gateway",
        );
        problems.require(
            !self.has_ruleset(Ruleset::DedicatedIp) || self.gateway().is_some(),
            "spec.network.firewall.rulesets",
            "`dedicated-ip` needs `spec.network.egress.gateway`",
        );
    }

    /// Checks the network of kinds whose instances come and go. They cannot have a gateway: an
    /// address that one instance still uses must not be given to another workload.
    pub(super) fn check_replicated(&self, problems: &mut Problems) {
        self.check(problems);
        let why = "is for sandboxes: leave it out";
        problems.require(self.gateway().is_none(), "spec.network.egress", why);
    }

    /// Returns every list of patterns, with its path in the wish.
    fn lists(&self) -> impl Iterator<Item = (String, &Vec<String>)> {
        let top = [
            ("allowedDomains", self.allowed_domains.as_ref()),
            ("forbiddenDomains", self.forbidden_domains.as_ref()),
        ];
        let proxy = self.proxy.as_ref();
        let proxy = [
            ("proxy.allowedDomains", proxy.and_then(|proxy| proxy.allowed_domains.as_ref())),
            ("proxy.bypass", proxy.and_then(|proxy| proxy.bypass.as_ref())),
            ("proxy.forbiddenDomains", proxy.and_then(|proxy| proxy.forbidden_domains.as_ref())),
        ];
        let fixed = top.into_iter().chain(proxy);
        let fixed = fixed.filter_map(|(at, list)| Some((format!("spec.network.{at}"), list?)));
        let targets = self.targets().iter().enumerate().filter_map(|(index, target)| {
            let at = format!("spec.network.proxy.routing[{index}].destinations");
            Some((at, target.destinations.as_ref()?))
        });
        fixed.chain(targets)
    }

    /// Carries over what an update leaves out: secrets of rules that stay the same, and what was
    /// fixed at creation.
    pub(super) fn keep(new: &mut Option<Self>, old: Option<&Self>) {
        let Some(old) = old else { return };
        if let Some(network) = new {
            network.keep_secrets(old);
        }
        if old.gateway().is_some() {
            let egress = &mut new.get_or_insert_default().egress;
            crate::parts::keep(egress, Some(&old.egress));
        }
    }

    /// Carries over secrets. Answers omit or mask them, so a caller that changes something else
    /// sends its rules back without them. They stay with the destinations that they were given for,
    /// because those who may change a rule may not read its secrets, and could if they sent them to
    /// a host of their own. What is missing then is refused by [`Network::check_change`].
    fn keep_secrets(&mut self, old: &Self) {
        let orphans = self.orphans(old);
        for target in self.targets_mut().filter(|target| !target.has_secrets()) {
            let same = old.targets().iter().find(|old| target.is_same_rule(old));
            let source = same.or_else(|| {
                let mut fit = orphans.iter().filter(|old| target.leads_within(old));
                fit.next().filter(|_| fit.next().is_none()).copied()
            });
            target.take_secrets(source);
        }
    }

    /// Returns the rules of an older form that had secrets and are not the same any more.
    fn orphans<'o>(&self, old: &'o Self) -> Vec<&'o ProxyTarget> {
        let is_kept = |old: &ProxyTarget| self.targets().iter().any(|new| new.is_same_rule(old));
        old.targets().iter().filter(|old| !old.secrets().is_empty() && !is_kept(old)).collect()
    }

    /// Refuses rules whose secrets got lost, or were masked and are not for these destinations.
    pub(super) fn check_change(new: Option<&Self>, old: Option<&Self>, problems: &mut Problems) {
        let (Some(new), Some(old)) = (new, old) else { return };
        let orphans = new.orphans(old);
        let why = "has to be sent again: the rule has changed, and a secret only ever goes to the \
                   destinations that it was given for";
        for (index, target) in new.targets().iter().enumerate() {
            let at = format!("spec.network.proxy.routing[{index}].secrets");
            let is_new = !old.targets().contains(target);
            let empty = target.secrets().iter().filter(|(_, value)| is_new && value.is_empty());
            empty.for_each(|(name, _)| problems.add(format!("{at}.{name}"), why));
            let is_lost = target.secrets.is_none() && orphans.iter().any(|old| target.follows(old));
            problems.require(!is_lost, at, format!("{why}; send `{{}}` if it needs none"));
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

impl ProxyTarget {
    /// Refuses headers that no request would get: a rule must not look as if it did something.
    fn check_headers(&self, at: &str, problems: &mut Problems) {
        names::check_headers(self.headers.as_ref(), at, problems);
        let names = self.headers.iter().flat_map(TextMap::keys);
        for name in names.filter(|name| !egress::can_add(name)) {
            let why = "is never added by a rule: it says where a message ends or whom it is for, \
                       or the server sets it; remove it";
            problems.add(format!("{at}.{name}"), why);
        }
    }

    fn check_secrets(&self, at: &str, problems: &mut Problems) {
        for (name, value) in self.secrets() {
            problems.require(!name.is_empty(), at, "has a secret without a name");
            problems.require(
                !name.contains(['{', '}']),
                format!("{at}.{name}"),
                "has a brace in its name, so no `{{SECRET:name}}` could name it",
            );
            let headers = self.headers.iter().flatten();
            let header = headers.clone().find(|(_, text)| text.contains(&placeholder(name)));
            let is_bad = value.contains(|letter: char| letter.is_control() && letter != '\t');
            if let (Some((header, _)), true) = (header, is_bad) {
                let why = format!(
                    "has a line break or another control character, which the header `{header}` \
                     must not have"
                );
                problems.add(format!("{at}.{name}"), why);
            }
        }
    }

    fn secrets(&self) -> &TextMap {
        static NONE: TextMap = TextMap::new();
        self.secrets.as_ref().map_or(&NONE, |Sensitive(secrets)| secrets)
    }

    /// Returns whether it came with secrets of its own, none of them masked.
    fn has_secrets(&self) -> bool {
        self.secrets.is_some() && !self.secrets().values().any(|value| value == MASK)
    }

    /// Takes the secrets that it came without from a rule. Masked ones that the rule does not have
    /// are left empty.
    fn take_secrets(&mut self, from: Option<&Self>) {
        let Some(Sensitive(secrets)) = &mut self.secrets else {
            self.secrets = from.and_then(|from| from.secrets.clone());
            return;
        };
        for (name, value) in secrets.iter_mut().filter(|(_, value)| *value == MASK) {
            *value = from.and_then(|from| from.secrets().get(name).cloned()).unwrap_or_default();
        }
    }

    fn is_same_rule(&self, other: &Self) -> bool {
        self.destinations == other.destinations
            && self.headers == other.headers
            && self.body == other.body
    }

    fn destinations(&self) -> HashSet<&String> {
        self.destinations.iter().flatten().collect()
    }

    /// Returns whether all its destinations are among those of another rule.
    fn leads_within(&self, other: &Self) -> bool {
        self.destinations().is_subset(&other.destinations())
    }

    /// Returns whether it looks like a changed form of an older rule: it leads to one of the same
    /// destinations, or names one of its secrets.
    fn follows(&self, old: &Self) -> bool {
        let texts = || self.headers.iter().chain(&self.body).flat_map(TextMap::values);
        let is_named = |name: &String| texts().any(|text| text.contains(&placeholder(name)));
        !self.destinations().is_disjoint(&old.destinations()) || old.secrets().keys().any(is_named)
    }
}

/// Returns what stands for a secret in the values of a rule.
fn placeholder(secret: &str) -> String {
    format!("{{{{SECRET:{secret}}}}}")
}

/// Merges two lists with the same meaning, without duplicates.
fn joined(older: &Option<Vec<String>>, list: &Option<Vec<String>>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    for pattern in older.iter().chain(list).flatten() {
        if seen.insert(pattern) {
            joined.push(pattern.clone());
        }
    }
    joined
}

/// Checks the patterns of one list. An unusual pattern is taken as a literal domain. Only
/// characters that no name or path can have are refused: such a pattern would forbid or allow
/// nothing, and nobody would notice.
fn check_patterns(at: &str, patterns: &[String], problems: &mut Problems) {
    for (index, pattern) in patterns.iter().enumerate() {
        let well = !pattern.chars().any(|it| it.is_whitespace() || it.is_control());
        let at = format!("{at}[{index}]");
        problems.require(!pattern.is_empty(), at.clone(), "must not be empty");
        problems.require(well, at, "must have no white space and no control characters");
    }
}

#[cfg(test)]
mod tests;
