//! Custom domains: a user's own names, under which previews and applications answer.

use crate::parts::{Head, Labels, Stamped, TextMap, fixed, keep, limits, names};
use crate::{Kind, KindName, ObjectMetadata, Problems, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomDomain {
    pub metadata: CustomDomainMetadata,
    pub spec: CustomDomainSpec,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomDomainMetadata {
    /// The domain itself.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    #[schemars(schema_with = "limits::labels")]
    pub labels: Option<Labels>,
    /// The workspace that shares the domain, if it belongs to another one.
    #[serde(skip_deserializing)]
    pub shared_from_workspace: Option<String>,
    #[serde(flatten, skip_deserializing)]
    pub stamped: Stamped,
}

impl Head for CustomDomainMetadata {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn display_name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }

    fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }
}

/// The kind of resource that answers under a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainType {
    #[default]
    Previews,
    Applications,
}

/// Whether the user was found to own the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainStatus {
    #[default]
    Pending,
    Verified,
    Failed,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomDomainSpec {
    pub domain_type: Option<DomainType>,
    /// Alternative to `domainType` that some clients send.
    #[serde(rename = "type")]
    pub older_domain_type: Option<DomainType>,
    /// Alternative to `metadata.name` that some clients send.
    #[serde(rename = "domain")]
    #[schemars(length(max = 253))]
    pub older_name: Option<String>,
    /// The preview that answers for hosts that no other preview has. An empty text removes it.
    #[schemars(length(max = 63))]
    pub fallback_preview_id: Option<String>,
    #[schemars(length(max = limits::WORD_MAX))]
    pub region: Option<String>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub subject_alternative_names: Option<Vec<Map<String, Value>>>,
    /// DNS records that the user sets to prove ownership.
    #[serde(skip_deserializing)]
    pub txt_records: Option<TextMap>,
    /// Target of the user's CNAME record.
    #[serde(skip_deserializing)]
    pub cname_records: Option<String>,
    #[serde(skip_deserializing)]
    pub status: Option<DomainStatus>,
    #[serde(skip_deserializing)]
    pub last_verified_at: Option<Timestamp>,
    #[serde(skip_deserializing)]
    pub verification_error: Option<String>,
}

/// What the server knows about a domain beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub status: DomainStatus,
    pub last_verified_at: Option<Timestamp>,
    pub verification_error: Option<String>,
    pub txt_records: TextMap,
    pub cname_records: Option<String>,
    pub shared_from_workspace: Option<String>,
    /// Workspaces that may use the domain, besides its own.
    pub shared_with: Vec<String>,
}

impl Kind for CustomDomain {
    const NAME: KindName = KindName::CustomDomain;
    const NAME_ALSO_AT: &'static [&'static str] = &["spec", "domain"];

    type State = State;

    head!();
    placed!();

    fn check(&self, problems: &mut Problems) {
        let name = &self.metadata.name;
        let message = match names::is_ip_like(name) {
            true => "is an IP address; register a domain name that leads here",
            false => {
                "must be a domain name: lower case, at least two labels, such as `app.example.com`"
            }
        };
        let well = names::is_dns_name(name) && !names::is_ip_like(name);
        problems.require(well, "metadata.name", message);
        let same = self.spec.older_name.is_none();
        problems.require(same, "spec.domain", "must equal `metadata.name`, or be left out");
    }

    fn check_change(&self, old: &Self, problems: &mut Problems) {
        fixed(&self.spec.region, &old.spec.region, "spec.region", problems);
        fixed(&self.spec.domain_type, &old.spec.domain_type, "spec.domainType", problems);
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        let spec = &mut self.spec;
        keep(&mut spec.region, old.map(|old| &old.spec.region));
        spec.domain_type = spec.domain_type.or(spec.older_domain_type.take());
        let name = &self.metadata.name;
        spec.older_name.take_if(|domain| domain.is_empty() || domain == name);
        keep(&mut spec.domain_type, old.map(|old| &old.spec.domain_type));
        spec.domain_type.get_or_insert_default();
        spec.fallback_preview_id = spec.fallback_preview_id.take().filter(|id| !id.is_empty());
    }

    fn next_state(&self, old: Option<(&Self, &State)>, _now: Timestamp) -> State {
        old.map(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        self.metadata.stamped = Stamped::from(stamp);
        self.metadata.shared_from_workspace.clone_from(&state.shared_from_workspace);
        let spec = &mut self.spec;
        spec.txt_records = Some(state.txt_records.clone()).filter(|records| !records.is_empty());
        spec.cname_records.clone_from(&state.cname_records);
        spec.status = Some(state.status);
        spec.last_verified_at = state.last_verified_at;
        spec.verification_error.clone_from(&state.verification_error);
    }
}
