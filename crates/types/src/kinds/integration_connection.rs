//! Connections: settings and credentials of an outside service.

use crate::parts::{Head, Metadata, Sensitive, TextMap, limits, visit_map};
use crate::{Kind, KindName, Problems, Stamp, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Secrets that a mail connection needs.
const GMAIL_SECRETS: [&str; 3] = ["CLIENT_ID", "CLIENT_SECRET", "REFRESH_TOKEN"];

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationConnection {
    pub metadata: Metadata,
    pub spec: IntegrationConnectionSpec,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IntegrationConnectionSpec {
    #[schemars(schema_with = "limits::text_map")]
    pub config: Option<TextMap>,
    /// Name of the provider. Cannot be changed.
    #[schemars(length(max = limits::WORD_MAX))]
    pub integration: Option<String>,
    pub sandbox: Option<bool>,
    /// Stored encrypted and shown masked.
    #[schemars(schema_with = "limits::text_map")]
    pub secret: Option<Sensitive<TextMap>>,
}

impl Kind for IntegrationConnection {
    const NAME: KindName = KindName::IntegrationConnection;

    type State = ();

    head!();

    fn check(&self, problems: &mut Problems) {
        let integration = self.spec.integration.as_deref().unwrap_or_default();
        problems.require(!integration.is_empty(), "spec.integration", "is required");
        if integration == "gmail" {
            for name in GMAIL_SECRETS {
                let secret =
                    self.spec.secret.as_ref().and_then(|Sensitive(secret)| secret.get(name));
                let given = secret.is_some_and(|value| !value.is_empty());
                problems.require(given, format!("spec.secret.{name}"), "is required for gmail");
            }
        }
    }

    fn check_change(&self, old: &Self, problems: &mut Problems) {
        let same = self.spec.integration == old.spec.integration;
        problems.require(same, "spec.integration", "cannot be changed: make another connection");
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        visit_map(self.spec.secret.as_mut().map(|Sensitive(secret)| secret), "secret", visit);
    }

    fn show(&mut self, stamp: &Stamp, _state: &(), _now: Timestamp) {
        self.metadata.stamp(stamp);
    }
}
