//! Which revisions of a resource take traffic, and whether a new one serves.

use super::limits;
use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionConfiguration {
    /// The revision that serves.
    #[schemars(length(max = limits::WORD_MAX))]
    pub active: Option<String>,
    /// A revision that gets a share of the traffic beside the active one.
    #[schemars(length(max = limits::WORD_MAX))]
    pub canary: Option<String>,
    #[schemars(range(min = 0, max = 100))]
    pub canary_percent: Option<i64>,
    /// How long a caller stays with one revision, in seconds; 0 turns this off.
    #[schemars(range(min = 0, max = limits::YEAR_S))]
    pub sticky_session_ttl: Option<i64>,
    #[schemars(range(min = 0, max = 100))]
    pub traffic: Option<i64>,
}

/// One revision in a list of revisions.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionMetadata {
    pub active: Option<bool>,
    pub canary: Option<bool>,
    pub previous_active: Option<bool>,
    pub traffic_percent: Option<i64>,
    #[schemars(extend("readOnly" = true))]
    pub id: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub status: Option<String>,
    #[schemars(extend("readOnly" = true))]
    pub created_at: Option<Timestamp>,
    #[schemars(extend("readOnly" = true))]
    pub created_by: Option<String>,
}

/// What a write means for the revisions of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deploy {
    /// The spec is unchanged, and no other revision was asked for.
    Nothing,
    /// The spec changed and is kept as a new revision, which serves if the newest one did before.
    New { serves: bool },
    /// The spec is unchanged, but an earlier revision is to serve again.
    Back { to: String },
}

impl RevisionConfiguration {
    /// Decides what a write means. `self` is what the caller sent, `stored` what was there before,
    /// `newest` the id of the newest revision; `changed` tells whether what revisions keep differs.
    pub fn decide(&self, stored: &Self, newest: Option<&str>, changed: bool) -> Deploy {
        match (changed, self.other_active(stored)) {
            (false, Some(asked)) => Deploy::Back { to: asked.to_owned() },
            (false, None) => Deploy::Nothing,
            (true, _) => Deploy::New {
                serves: stored.active.is_none() || stored.active.as_deref() == newest,
            },
        }
    }

    /// Returns the revision that is to be active, if it is not the stored one.
    pub fn other_active(&self, stored: &Self) -> Option<&str> {
        let asked = self.active.as_deref().filter(|asked| !asked.is_empty());
        asked.filter(|asked| stored.active.as_deref() != Some(*asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(id: &str) -> RevisionConfiguration {
        RevisionConfiguration { active: Some(id.into()), ..Default::default() }
    }

    #[test]
    fn a_change_serves_when_the_newest_served_before() {
        assert_eq!(active("b").decide(&active("b"), Some("b"), true), Deploy::New { serves: true });
        assert_eq!(
            active("a").decide(&active("a"), Some("b"), true),
            Deploy::New { serves: false }
        );
        assert_eq!(
            RevisionConfiguration::default().decide(&active("b"), Some("b"), true),
            Deploy::New { serves: true }
        );
    }

    #[test]
    fn naming_an_older_revision_goes_back_to_it() {
        assert_eq!(
            active("a").decide(&active("b"), Some("b"), false),
            Deploy::Back { to: "a".into() }
        );
        assert_eq!(active("b").decide(&active("b"), Some("b"), false), Deploy::Nothing);
    }
}
