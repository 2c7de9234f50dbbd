//! Tokens that open a private preview.

use crate::parts::{Head, Sensitive, limits};
use crate::{Kind, KindName, Naming, Stamp, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewToken {
    pub metadata: PreviewTokenMetadata,
    pub spec: PreviewTokenSpec,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewTokenMetadata {
    #[schemars(length(min = 1, max = 63), regex(pattern = limits::PATH_SEGMENT))]
    pub name: String,
    #[serde(skip_deserializing)]
    pub preview_name: Option<String>,
    /// The sandbox.
    #[serde(skip_deserializing)]
    pub resource_name: Option<String>,
    #[serde(skip_deserializing)]
    pub resource_type: Option<String>,
    #[serde(skip_deserializing)]
    pub workspace: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewTokenSpec {
    pub expires_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub expired: Option<bool>,
    #[serde(skip_deserializing)]
    pub token: Option<Sensitive<String>>,
}

impl Head for PreviewTokenMetadata {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

/// What the server knows of a token: the token. It is shown again, so a digest does not do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub token: Sensitive<String>,
}

impl Kind for PreviewToken {
    const NAME: KindName = KindName::PreviewToken;
    const NAMING: Naming = Naming::Server { prefix: "token" };
    const PARENTS: &'static [KindName] = &[KindName::Sandbox, KindName::Preview];

    type State = State;

    head!();

    fn next_state(&self, old: Option<(&Self, &State)>, _now: Timestamp) -> State {
        old.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn show(&mut self, stamp: &Stamp, state: &State, now: Timestamp) {
        self.metadata.workspace = Some(stamp.workspace.clone());
        self.metadata.resource_type = Some("sandbox".into());
        self.metadata.resource_name = stamp.parents.first().cloned();
        self.metadata.preview_name = stamp.parents.get(1).cloned();
        self.spec.token = Some(state.token.clone());
        self.spec.expired = Some(self.spec.expires_at.is_some_and(|end| end <= now));
    }
}
