//! When a sandbox is deleted by itself.

use crate::parts::{duration, limits};
use crate::{Problems, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxLifecycle {
    /// Conditions for deletion; the first one that is met applies.
    #[schemars(length(max = limits::LIST_MAX))]
    pub expiration_policies: Option<Vec<ExpirationPolicy>>,
    /// How long the record is kept after the end, such as `24h`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub terminated_retention: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExpirationType {
    TtlIdle,
    TtlMaxAge,
    Date,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExpirationAction {
    #[default]
    Delete,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExpirationPolicy {
    pub action: Option<ExpirationAction>,
    #[serde(rename = "type")]
    pub kind: Option<ExpirationType>,
    /// A length of time such as `30m`; a time if `type` is `date`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub value: Option<String>,
}

impl SandboxLifecycle {
    pub(super) fn check(&self, problems: &mut Problems) {
        duration::check(
            self.terminated_retention.as_deref(),
            "spec.lifecycle.terminatedRetention",
            problems,
        );
        for (index, policy) in self.expiration_policies.iter().flatten().enumerate() {
            policy.check(&format!("spec.lifecycle.expirationPolicies[{index}]"), problems);
        }
    }
}

impl ExpirationPolicy {
    fn check(&self, at: &str, problems: &mut Problems) {
        problems.require(self.kind.is_some(), format!("{at}.type"), "is required");
        let field = format!("{at}.value");
        match (self.kind, self.value.as_deref().filter(|value| !value.is_empty())) {
            (_, None) => problems.add(field, "is required"),
            (Some(ExpirationType::Date), Some(value)) => {
                let message = "must be an RFC 3339 time such as `2026-04-16T09:30:00Z`";
                problems.require(value.parse::<Timestamp>().is_ok(), field, message);
            }
            (_, value) => duration::check(value, &field, problems),
        }
    }

    pub(super) fn ends(
        &self,
        created_at: Timestamp,
        last_used_at: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let value = self.value.as_deref()?;
        match self.kind? {
            ExpirationType::Date => value.parse().ok(),
            ExpirationType::TtlMaxAge => Some(created_at.plus_s(duration::parse_s(value).ok()?)),
            ExpirationType::TtlIdle => {
                Some(last_used_at.unwrap_or(created_at).plus_s(duration::parse_s(value).ok()?))
            }
        }
    }
}
