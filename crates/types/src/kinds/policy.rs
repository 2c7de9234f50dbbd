//! Policies: limits on where, on what hardware, and how much other resources may run.

use crate::models::{Amounts, ModelLimit, window_step};
use crate::parts::{Flavor, Head, Metadata, limits};
use crate::{Kind, KindName, ObjectMetadata, Problems, Timestamp, World};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    pub metadata: Metadata,
    pub spec: PolicySpec,
    /// Number of resources that name the policy.
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

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    Minute,
    Hour,
    Day,
    Month,
}

/// The scope within which usage is added up.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum LimitPer {
    /// Each model separately.
    #[default]
    Model,
    /// All models with the policy together.
    Workspace,
    /// Each key or signed-in caller separately.
    Key,
    /// Each end user, as named in requests, separately.
    EndUser,
}

/// Limits on the usage of models in each window of `step` times `granularity`. A limit of 0 means
/// no limit.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyMaxTokens {
    /// US dollars, such as `12.50`. Never exceeded: a request passes only if the most it may cost
    /// is still left.
    #[schemars(length(max = limits::WORD_MAX))]
    pub cost: Option<String>,
    pub granularity: Option<Granularity>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub input: Option<i64>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub output: Option<i64>,
    /// Scope within which usage is added up. Default: each model separately.
    pub per: Option<LimitPer>,
    #[schemars(range(min = 0, max = limits::COUNT_MAX))]
    pub requests: Option<i64>,
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
                    limit.amounts().check("spec.maxTokens", problems);
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

    fn show(&mut self, stamp: &ObjectMetadata, _state: &(), _now: Timestamp) {
        self.metadata.stamp(stamp);
    }
}

impl PolicyMaxTokens {
    fn amounts(&self) -> Amounts<'_> {
        Amounts {
            cost: self.cost.as_deref(),
            requests: self.requests,
            input: self.input,
            output: self.output,
            total: self.total,
        }
    }
}

impl PolicySpec {
    /// Returns true if the policy applies to resources of this type. Without a list of types it
    /// applies to all.
    pub fn concerns(&self, resource: PolicyResourceType) -> bool {
        let types = self.resource_types.as_deref().unwrap_or_default();
        types.is_empty() || types.contains(&resource)
    }

    /// Returns the limits on models with this policy: one for each of its amounts.
    pub fn model_limits(&self, id: &str, name: &str) -> Vec<ModelLimit> {
        let limits = self.max_tokens.as_ref().filter(|_| self.kind == Some(PolicyType::MaxToken));
        let Some((limits, granularity)) = limits.and_then(|it| Some((it, it.granularity?))) else {
            return Vec::new();
        };
        let limit = |(measure, amount)| ModelLimit {
            id: id.to_owned(),
            name: format!("policy `{name}`"),
            measure,
            amount,
            per: limits.per.unwrap_or_default(),
            granularity,
            step: window_step(limits.step),
        };
        limits.amounts().measured().into_iter().map(limit).collect()
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
