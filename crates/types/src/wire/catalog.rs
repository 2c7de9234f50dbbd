//! Catalogue of this installation: regions, hubs, templates, features, news.

use super::Free;
use crate::Timestamp;
use crate::parts::{Flavor, Port};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    pub continents: Option<Vec<Continent>>,
    pub countries: Option<Vec<Country>>,
    /// The region nearest to the caller.
    pub detected_region: Option<String>,
    pub private_locations: Option<Vec<PrivateLocation>>,
    pub regions: Option<Vec<Region>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Continent {
    pub display_name: Option<String>,
    pub name: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Country {
    pub display_name: Option<String>,
    pub name: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrivateLocation {
    pub name: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Region {
    pub agent_drive_public_url: Option<Free>,
    pub allowed: Option<String>,
    pub continent: Option<String>,
    pub country: Option<String>,
    pub drives_available: Option<bool>,
    pub egress_available: Option<bool>,
    pub info_generation: Option<String>,
    pub location: Option<String>,
    pub mk31_available: Option<bool>,
    pub name: Option<String>,
    pub proxy_available: Option<bool>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocationResponse {
    pub continent: Option<String>,
    pub country: Option<String>,
    pub flavors: Option<Vec<Flavor>>,
    pub location: Option<String>,
    pub region: Option<String>,
    /// Status of the location, such as `healthy`.
    pub status: Option<String>,
}

/// A repository to start from.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    pub default_branch: Option<String>,
    pub description: Option<String>,
    pub download_count: Option<i64>,
    pub forks_count: Option<i64>,
    pub icon: Option<String>,
    pub icon_dark: Option<String>,
    pub name: Option<String>,
    pub sha: Option<String>,
    pub star_count: Option<i64>,
    pub topics: Option<Vec<String>>,
    pub url: Option<String>,
    pub variables: Option<Vec<TemplateVariable>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateVariable {
    pub description: Option<String>,
    pub integration: Option<String>,
    pub name: Option<String>,
    pub path: Option<String>,
    pub secret: Option<bool>,
}

/// An image of the sandbox hub.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDefinition {
    pub categories: Option<Vec<Free>>,
    #[serde(rename = "coming_soon")]
    pub coming_soon: Option<bool>,
    pub description: Option<String>,
    pub display_name: Option<String>,
    pub enterprise: Option<bool>,
    pub hidden: Option<bool>,
    pub icon: Option<String>,
    pub image: Option<String>,
    pub long_description: Option<String>,
    /// Memory in megabytes.
    pub memory: Option<i64>,
    pub name: Option<String>,
    pub ports: Option<Vec<Port>>,
    pub tags: Option<String>,
    pub url: Option<String>,
}

/// The features that are switched on. Others are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Features {
    pub features: BTreeMap<String, bool>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Feature {
    pub enabled: bool,
    pub evaluated_at: Timestamp,
    pub feature_key: String,
    pub payload: Option<Free>,
    pub variant: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangelogResponse {
    pub entries: Option<Vec<ChangelogEntry>>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangelogEntry {
    pub content: Option<String>,
    pub date: Option<String>,
    pub title: Option<String>,
}

/// Addresses from which outgoing traffic comes, by region.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct PublicIps(pub BTreeMap<String, PublicIp>);

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublicIp {
    pub description: Option<String>,
    pub ipv4_cidrs: Option<Vec<String>>,
    pub ipv6_cidrs: Option<Vec<String>>,
}
