//! Connections: settings and credentials of an outside service.

use crate::parts::{Head, MASK, Metadata, Sensitive, TextMap, limits, visit_map};
use crate::{Kind, KindName, ObjectMetadata, Problems, Timestamp, World};
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
        let is_elsewhere = self.leads_elsewhere(old);
        let left_out = self.secret().filter(|(_, value)| is_elsewhere && value.is_empty());
        for (name, _) in left_out {
            let message = "has to be sent again: the connection leads to another address now";
            problems.add(format!("spec.secret.{name}"), message);
        }
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        // Those who may change a connection may not read its secrets. They could if they sent them
        // to an address of their own.
        if old.is_some_and(|old| self.leads_elsewhere(old)) {
            let masked =
                self.spec.secret.iter_mut().flat_map(|Sensitive(secret)| secret.values_mut());
            masked.filter(|value| *value == MASK).for_each(String::clear);
        }
    }

    fn secrets(&mut self, visit: &mut dyn FnMut(&str, &mut String)) {
        visit_map(self.spec.secret.as_mut().map(|Sensitive(secret)| secret), "secret", visit);
    }

    fn show(&mut self, stamp: &ObjectMetadata, _state: &(), _now: Timestamp) {
        self.metadata.stamp(stamp);
    }
}

impl IntegrationConnection {
    fn secret(&self) -> impl Iterator<Item = (&String, &String)> {
        self.spec.secret.iter().flat_map(|Sensitive(secret)| secret)
    }

    /// Whether secrets would be sent to another address than those of an older form.
    fn leads_elsewhere(&self, old: &Self) -> bool {
        let addresses = |of: &Self| -> Vec<(String, String)> {
            let config = of.spec.config.iter().flatten();
            // Some integrations take a host without a scheme.
            let addresses = config.filter(|(_, value)| value.contains(['.', ':']));
            addresses.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        addresses(self) != addresses(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn connection(endpoint: &str, key: &str) -> IntegrationConnection {
        let spec = json!({
            "integration": "openai", "config": {"endpoint": endpoint, "dialects": key},
            "secret": {"apiKey": key},
        });
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": spec})).unwrap()
    }

    fn changed(endpoint: &str, key: &str) -> Result<IntegrationConnection, Problems> {
        let old = connection("https://here.example.org", "sk-1");
        let mut new = connection(endpoint, key);
        let world = World::new(|| Timestamp::from_ms(0), |bytes| bytes.fill(1));
        new.complete(Some(&old), &world);
        let mut problems = Problems::default();
        new.check_change(&old, &mut problems);
        problems.into_result().map(|()| new)
    }

    #[test]
    fn a_masked_secret_is_not_sent_to_another_address() {
        assert!(changed("https://elsewhere.example.org", MASK).is_err());
        assert!(changed("elsewhere.example.org", MASK).is_err());
        for (endpoint, key) in
            [("https://here.example.org", MASK), ("https://elsewhere.example.org", "sk-2")]
        {
            let kept = changed(endpoint, key).unwrap();
            assert_eq!(kept.secret().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), [key]);
        }
    }
}
