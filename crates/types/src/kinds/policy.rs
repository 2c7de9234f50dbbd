//! Policies: where, on what, and how much of it others may run.

use crate::parts::{Flavor, Head, Metadata, limits};
use crate::{Kind, KindName, Problems, Stamp, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    pub metadata: Metadata,
    pub spec: PolicySpec,
    /// How many resources name it.
    #[serde(skip_deserializing)]
    pub usage: Option<PolicyUsageCounts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PolicyType {
    Location,
    Flavor,
    MaxToken,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    #[schemars(length(max = limits::LIST_MAX))]
    pub flavors: Option<Vec<Flavor>>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub locations: Option<Vec<PolicyLocation>>,
    pub max_tokens: Option<PolicyMaxTokens>,
    #[schemars(length(max = limits::LIST_MAX))]
    pub resource_types: Option<Vec<PolicyResourceType>>,
    pub sandbox: Option<bool>,
    #[serde(rename = "type")]
    pub kind: Option<PolicyType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PolicyResourceType {
    Model,
    Function,
    Agent,
    Sandbox,
    Application,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LocationType {
    Location,
    Country,
    Continent,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyLocation {
    #[schemars(length(max = limits::WORD_MAX))]
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<LocationType>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    Minute,
    Hour,
    Day,
    Month,
}

/// Tokens in each window of `step` times `granularity`. A limit of 0 is none.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyMaxTokens {
    pub granularity: Option<Granularity>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub input: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub output: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub ratio_input_over_output: Option<i64>,
    #[schemars(range(min = 1, max = limits::SCALE_MAX))]
    pub step: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub total: Option<i64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyUsageCounts {
    pub agents: Option<i64>,
    pub functions: Option<i64>,
    pub jobs: Option<i64>,
    pub models: Option<i64>,
    pub sandboxes: Option<i64>,
}

impl Kind for Policy {
    const NAME: KindName = KindName::Policy;

    type State = ();

    head!();

    fn check(&self, problems: &mut Problems) {
        let spec = &self.spec;
        match spec.kind {
            None => problems.add("spec.type", "is required"),
            Some(PolicyType::Location) => {
                check_locations(spec.locations.as_deref().unwrap_or_default(), problems)
            }
            Some(PolicyType::Flavor) => {
                check_flavors(spec.flavors.as_deref().unwrap_or_default(), problems)
            }
            Some(PolicyType::MaxToken) => match &spec.max_tokens {
                None => problems.add("spec.maxTokens", "is required for policies of this type"),
                Some(limit) => {
                    let message = "is required: minute, hour, day or month";
                    problems.require(
                        limit.granularity.is_some(),
                        "spec.maxTokens.granularity",
                        message,
                    );
                }
            },
        }
    }

    fn complete(&mut self, old: Option<&Self>, _world: &World) {
        self.metadata.keep_external_id(old.map(|old| &old.metadata));
        if let Some(limit) = &mut self.spec.max_tokens {
            limit.step.get_or_insert(1);
        }
    }

    fn show(&mut self, stamp: &Stamp, _state: &(), _now: Timestamp) {
        self.metadata.stamp(stamp);
    }
}

fn check_locations(locations: &[PolicyLocation], problems: &mut Problems) {
    problems.require(
        !locations.is_empty(),
        "spec.locations",
        "is required for policies of this type",
    );
    for (index, location) in locations.iter().enumerate() {
        let named = location.name.as_deref().is_some_and(|name| !name.is_empty());
        problems.require(named, format!("spec.locations[{index}].name"), "is required");
        problems.require(
            location.kind.is_some(),
            format!("spec.locations[{index}].type"),
            "is required",
        );
    }
}

fn check_flavors(flavors: &[Flavor], problems: &mut Problems) {
    problems.require(!flavors.is_empty(), "spec.flavors", "is required for policies of this type");
    for (index, flavor) in flavors.iter().enumerate() {
        let named = flavor.name.as_deref().is_some_and(|name| !name.is_empty());
        problems.require(named, format!("spec.flavors[{index}].name"), "is required");
    }
}
