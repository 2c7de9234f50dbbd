//! The rules of one instance, ready to be asked.

use crate::host::Host;
use types::egress::EgressRules;

/// What the rules say of a host before any request is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Bytes pass as they are.
    Pass,
    /// Each request is decided for itself, or something is added to it: TLS has to be opened.
    Look,
    Block {
        /// As it was written, for whoever asks why.
        rule: String,
    },
}

#[derive(Debug)]
pub(crate) struct Policy {
    rules: EgressRules,
}

impl Policy {
    pub(crate) fn compile(rules: EgressRules) -> Self {
        Self { rules }
    }

    pub(crate) fn rules(&self) -> &EgressRules {
        &self.rules
    }

    pub(crate) fn of_host(&self, host: &Host) -> Verdict {
        let listed = |list: &[String]| list.iter().any(|entry| *entry == host.to_string());
        match () {
            () if listed(&self.rules.bypass) || listed(&self.rules.allowed_domains) => {
                Verdict::Pass
            }
            () if listed(&self.rules.forbidden_domains) => {
                Verdict::Block { rule: "forbiddenDomains".to_owned() }
            }
            () if !self.rules.allowed_domains.is_empty() => {
                Verdict::Block { rule: "allowedDomains".to_owned() }
            }
            () => Verdict::Pass,
        }
    }
}
