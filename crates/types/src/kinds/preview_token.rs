//! Tokens that open a private preview.

use crate::parts::{Head, Sensitive, limits, visit_sensitive};
use crate::{Kind, KindName, Naming, ObjectMetadata, Timestamp, World};
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
    /// Name of the sandbox.
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
    /// Token that opens the preview. Made by the server, stored encrypted, and shown to whoever may
    /// read the preview.
    #[schemars(extend("readOnly" = true))]
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

/// Long enough that nobody can guess a token.
const TOKEN_CHARACTERS: usize = 48;

impl Kind for PreviewToken {
    const NAME: KindName = KindName::PreviewToken;
    const NAMING: Naming = Naming::Server { prefix: "token" };

    type State = ();

    head!();

    fn complete(&mut self, old: Option<&Self>, world: &World) {
        let kept = old.and_then(|old| old.spec.token.clone());
        self.spec.token = kept.or_else(|| Some(Sensitive(world.random_text(TOKEN_CHARACTERS))));
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        visit_sensitive(self.spec.token.as_mut(), "token", visit);
    }

    fn show(&mut self, stamp: &ObjectMetadata, _state: &(), now: Timestamp) {
        self.metadata.workspace = Some(stamp.workspace.clone());
        self.metadata.resource_type = Some("sandbox".into());
        self.metadata.resource_name = stamp.parents.first().cloned();
        self.metadata.preview_name = stamp.parents.get(1).cloned();
        self.spec.expired = Some(self.spec.expires_at.is_some_and(|end| end <= now));
    }
}
