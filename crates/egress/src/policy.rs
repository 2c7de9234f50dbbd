//! The rules of one instance, compiled so that they can be applied quickly.

mod index;
#[cfg(test)]
mod tests;

use crate::pattern::Paths;
use http::Method;
use index::{Answer, Index};
use std::fmt;
use std::net::IpAddr;
use types::egress::EgressRules;
use types::kinds::network::ProxyTarget;
use types::parts::Sensitive;
use types::parts::hosts::Host;
use zeroize::Zeroize as _;

/// What the rules say about a host before any request is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Bytes pass unchanged.
    Pass,
    /// Each request has to be decided by itself, or something is added to it, so TLS has to be
    /// opened.
    Look,
    Block {
        /// The entry as it was written, for people who ask why.
        rule: String,
    },
}

/// What the rules say about one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestVerdict {
    Pass {
        /// The entry that let it pass, if that took one.
        rule: Option<String>,
    },
    Block {
        rule: String,
    },
}

pub(crate) struct Policy {
    rules: EgressRules,
    bypass: Index,
    allowed: Index,
    forbidden: Index,
    /// The destinations of all routing rules, one after another.
    destinations: Index,
    /// For each of `destinations`, the index of its routing rule.
    targets: Vec<u32>,
}

/// Names of the lists, as the owner of the rules knows them.
const BYPASS: &str = "bypass";
const ALLOWED: &str = "allowedDomains";
const FORBIDDEN: &str = "forbiddenDomains";

impl Policy {
    pub(crate) fn compile(rules: EgressRules) -> Self {
        let destinations = || {
            let of = |target: &ProxyTarget| target.destinations.clone().unwrap_or_default();
            rules.routing.iter().enumerate().flat_map(move |(index, target)| {
                of(target).into_iter().map(move |entry| (index, entry))
            })
        };
        let entries: Vec<String> = destinations().map(|(_, entry)| entry).collect();
        let number = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        Self {
            bypass: Index::new(&rules.bypass),
            allowed: Index::new(&rules.allowed_domains),
            forbidden: Index::new(&rules.forbidden_domains),
            destinations: Index::new(&entries),
            targets: destinations().map(|(index, _)| number(index)).collect(),
            rules,
        }
    }

    pub(crate) fn rules(&self) -> &EgressRules {
        &self.rules
    }

    /// Returns whether a host is exempt from all other rules, whatever is requested from it.
    pub(crate) fn bypasses(&self, host: &Host) -> bool {
        self.bypass.of_host(host) == Answer::Always
    }

    /// Returns whether all traffic must go through the explicit proxy.
    pub(crate) fn proxy_only(&self) -> bool {
        self.rules.proxy_only
    }

    /// Returns the addresses that traffic leaves from.
    pub(crate) fn source(&self) -> &[IpAddr] {
        &self.rules.source
    }

    pub(crate) fn of_host(&self, host: &Host) -> Verdict {
        match self.of_host_unseen(host) {
            Verdict::Pass if !self.bypasses(host) && self.adds(host) => Verdict::Look,
            verdict => verdict,
        }
    }

    /// Returns whether something is added to a host's requests, which then have to be opened.
    fn adds(&self, host: &Host) -> bool {
        self.destinations.of_host(host) != Answer::Never
    }

    /// Like [`Policy::of_host`], for bytes that nothing can be added to.
    pub(crate) fn of_host_unseen(&self, host: &Host) -> Verdict {
        let bypass = self.bypass.of_host(host);
        if bypass == Answer::Always {
            return Verdict::Pass;
        }
        let excepted = bypass == Answer::Sometimes;
        let allowed = self.allowed.of_host(host);
        let forbidden = self.forbidden.of_host(host);
        let may_pass = excepted || allowed == Answer::Sometimes;
        match (allowed, forbidden) {
            (Answer::Always, _) => Verdict::Pass,
            (_, Answer::Always) if !may_pass => Verdict::Block {
                rule: self.forbidden.rule(FORBIDDEN, &self.rules.forbidden_domains, host),
            },
            (Answer::Never, Answer::Never | Answer::Sometimes)
                if !self.rules.allowed_domains.is_empty() && !may_pass =>
            {
                // Also if something of the host is forbidden: here everything is.
                Verdict::Block { rule: ALLOWED.to_owned() }
            }
            (Answer::Never, Answer::Never) if self.rules.allowed_domains.is_empty() => {
                Verdict::Pass
            }
            _ => Verdict::Look,
        }
    }

    /// `paths` bounds what this may cost, also for several hosts one after the other.
    pub(crate) fn of_request(&self, host: &Host, method: &Method, paths: &Paths) -> RequestVerdict {
        let rules = &self.rules;
        let named = |list: &'static str, entries: &[String], index: u32| {
            let entry = entries.get(index as usize).map_or("", String::as_str);
            format!("{list}: {entry}")
        };
        if let Some(index) = self.bypass.first(host, |it| it.must_match(method, paths)) {
            return RequestVerdict::Pass { rule: Some(named(BYPASS, &rules.bypass, index)) };
        }
        if let Some(index) = self.allowed.first(host, |it| it.must_match(method, paths)) {
            let rule = named(ALLOWED, &rules.allowed_domains, index);
            return RequestVerdict::Pass { rule: Some(rule) };
        }
        if let Some(index) = self.forbidden.first(host, |it| it.may_match(method, paths)) {
            let rule = named(FORBIDDEN, &rules.forbidden_domains, index);
            return RequestVerdict::Block { rule };
        }
        if !rules.allowed_domains.is_empty() {
            return RequestVerdict::Block { rule: ALLOWED.to_owned() };
        }
        RequestVerdict::Pass { rule: None }
    }

    /// Returns the routing rules that apply to a request, in their order. A request that bypasses
    /// the rules has none.
    pub(crate) fn routes<'a>(
        &'a self,
        host: &Host,
        method: &Method,
        path: &str,
    ) -> impl Iterator<Item = &'a ProxyTarget> + use<'a> {
        let mut found = Vec::new();
        if !self.targets.is_empty() {
            let paths = Paths::of(path);
            // If a path is ambiguous, nothing is exempt and nothing is added.
            if self.bypass.first(host, |it| it.may_match(method, &paths)).is_none() {
                self.destinations.each(host, |index, condition| {
                    if condition.is_none_or(|it| it.must_match(method, &paths)) {
                        found.extend(self.targets.get(index as usize).copied());
                    }
                });
            }
        }
        found.sort_unstable();
        found.dedup();
        found.into_iter().filter_map(|index| self.rules.routing.get(index as usize))
    }
}

/// Wipes the values of rules, which may be keys even if they are not declared as secrets.
impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("allowed_domains", &self.rules.allowed_domains)
            .field("forbidden_domains", &self.rules.forbidden_domains)
            .field("bypass", &self.rules.bypass)
            .field("routing", &self.rules.routing.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        for target in &mut self.rules.routing {
            let secrets = target.secrets.iter_mut().flat_map(|Sensitive(map)| map.values_mut());
            let values = [&mut target.headers, &mut target.body];
            let values = values.into_iter().flatten().flat_map(|map| map.values_mut());
            secrets.chain(values).for_each(|value| value.zeroize());
        }
    }
}
