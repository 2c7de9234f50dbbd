//! Previews: addresses under which one port of a sandbox answers.

use crate::edge::{PreviewAddress, headers};
use crate::parts::{
    CoreEvent, Head, Lifecycle, Needs, Stamped, Status, TextMap, duration, limits, names,
};
use crate::{Kind, KindName, ObjectMetadata, Problems, Reference, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The edge itself answers at this port.
const PORT_RESERVED: i64 = 80;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    pub metadata: PreviewMetadata,
    pub spec: PreviewSpec,
    #[serde(skip_deserializing)]
    pub events: Option<Vec<CoreEvent>>,
    #[serde(skip_deserializing)]
    pub status: Option<Status>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewMetadata {
    #[schemars(length(min = 1, max = 63), regex(pattern = limits::DNS_LABEL))]
    pub name: String,
    #[schemars(length(max = 63), regex(pattern = limits::ONE_LINE))]
    pub display_name: Option<String>,
    /// Name of the sandbox.
    #[serde(skip_deserializing)]
    pub resource_name: Option<String>,
    #[serde(skip_deserializing)]
    pub resource_type: Option<String>,
    #[serde(flatten, skip_deserializing)]
    pub stamped: Stamped,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewSpec {
    /// A verified custom domain under which the preview answers.
    #[schemars(length(max = 253))]
    pub custom_domain: Option<String>,
    /// Time at which the preview is deleted.
    pub expires: Option<Timestamp>,
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// First label of the preview's host name.
    #[schemars(length(max = 63))]
    pub prefix_url: Option<String>,
    /// True if the preview answers without a token.
    pub public: Option<bool>,
    #[serde(skip_deserializing)]
    pub region: Option<String>,
    /// Headers set on requests to the sandbox.
    #[schemars(schema_with = "limits::text_map")]
    pub request_headers: Option<TextMap>,
    /// Headers set on answers.
    #[schemars(schema_with = "limits::text_map")]
    pub response_headers: Option<TextMap>,
    /// Longest lifetime, such as `24h`.
    #[schemars(length(max = limits::WORD_MAX))]
    pub ttl: Option<String>,
    #[serde(skip_deserializing)]
    pub url: Option<String>,
}

impl Head for PreviewMetadata {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn display_name(&self) -> Option<&str> {
        self.display_name.as_deref()
    }
}

/// What the server knows about a preview beside its wish.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// The region of its sandbox.
    #[serde(default)]
    pub region: Option<String>,
    /// The machine of its sandbox, if that had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Address of the preview. Missing only in previews of releases that did not record it, until
    /// the server has started.
    #[serde(default)]
    pub at: Option<PreviewAddress>,
}

impl Kind for Preview {
    const NAME: KindName = KindName::Preview;

    type State = State;

    head!();
    ready_at_once!();

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        problems.require(spec.port.is_some(), "spec.port", "is required");
        problems.require(
            spec.port != Some(PORT_RESERVED),
            "spec.port",
            "is reserved: 80 cannot be previewed",
        );
        let filled = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
        let prefix = filled(&spec.prefix_url).is_none_or(|prefix| names::is_dns_label(&prefix));
        problems.require(
            prefix,
            "spec.prefixUrl",
            "must be one label of a domain name: lower-case letters, digits and `-`",
        );
        let domain = filled(&spec.custom_domain).is_none_or(|domain| names::is_dns_name(&domain));
        problems.require(domain, "spec.customDomain", "must be a domain name");
        duration::check(spec.ttl.as_deref(), "spec.ttl", problems);
        let (asks, answers) = (spec.request_headers.as_ref(), spec.response_headers.as_ref());
        check_headers(asks, headers::is_reserved, "spec.requestHeaders", problems);
        check_headers(answers, headers::is_never_answered, "spec.responseHeaders", problems);
    }

    fn complete(&mut self, _old: Option<&Self>, _world: &World) {
        let spec = &mut self.spec;
        for text in [&mut spec.ttl, &mut spec.prefix_url, &mut spec.custom_domain] {
            *text = text.take().filter(|text| !text.is_empty());
        }
    }

    fn references(&self) -> Vec<Reference> {
        let domain = self.spec.custom_domain.clone().filter(|domain| !domain.is_empty());
        let reference = |name| Reference {
            kind: KindName::CustomDomain,
            name,
            field: "spec.customDomain".into(),
        };
        domain.map(reference).into_iter().collect()
    }

    fn show(&mut self, stamp: &ObjectMetadata, state: &State, _now: Timestamp) {
        self.metadata.stamped = Stamped::from(stamp);
        self.metadata.resource_name = stamp.parents.first().cloned();
        self.metadata.resource_type = Some("sandbox".into());
        self.spec.url.clone_from(&stamp.url);
        self.spec.region.clone_from(&state.region);
        self.events = Some(state.lifecycle.events.clone());
        self.status = state.lifecycle.status();
    }
}

/// Refuses headers that would not be set: a preview must not look as if it did.
fn check_headers(
    wanted: Option<&TextMap>,
    is_reserved: fn(&str) -> bool,
    at: &str,
    problems: &mut Problems,
) {
    names::check_headers(wanted, at, problems);
    for name in wanted.into_iter().flat_map(TextMap::keys).filter(|name| is_reserved(name)) {
        let why = "cannot be set by a preview: only the server decides what it says; remove it";
        problems.add(format!("{at}.{name}"), why);
    }
}

impl Preview {
    /// Returns when the preview is to be deleted, if its spec says so.
    pub fn expires_at(&self, created_at: Timestamp) -> Option<Timestamp> {
        let ttl = self.spec.ttl.as_deref().and_then(|ttl| duration::parse_s(ttl).ok());
        ttl.map(|ttl| created_at.plus_s(ttl)).into_iter().chain(self.spec.expires).min()
    }
}
