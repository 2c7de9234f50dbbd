//! Usage of models.

use crate::Timestamp;
use crate::model_books::UsageSum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Property by which the usage of models can be grouped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ModelUsageBy {
    /// The requested model.
    Model,
    /// The API key, or the person behind a token.
    Key,
    /// The end user that requests name.
    EndUser,
    /// The tag that requests set.
    Tag,
    /// The provider that answered.
    Provider,
    /// The provider's name for the model.
    ProviderModel,
}

impl ModelUsageBy {
    pub const ALL: [Self; 6] =
        [Self::Model, Self::Key, Self::EndUser, Self::Tag, Self::Provider, Self::ProviderModel];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Key => "key",
            Self::EndUser => "endUser",
            Self::Tag => "tag",
            Self::Provider => "provider",
            Self::ProviderModel => "providerModel",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.name() == name)
    }
}

/// Length of one step.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ModelUsageResolution {
    Hourly,
    Daily,
    /// One step for the whole window.
    #[default]
    Total,
}

impl ModelUsageResolution {
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "hourly" => Some(Self::Hourly),
            "daily" => Some(Self::Daily),
            "total" => Some(Self::Total),
            _ => None,
        }
    }
}

/// Usage of models within a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    /// Beginning of the first hour.
    pub start: Timestamp,
    /// End of the last hour.
    pub end: Timestamp,
    pub resolution: ModelUsageResolution,
    pub group_by: Vec<ModelUsageBy>,
    /// Entries, ordered by time and then by group.
    pub data: Vec<ModelUsageEntry>,
    /// Sum of all entries.
    pub total: ModelUsageSum,
}

/// Usage of one group in one step.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsageEntry {
    /// Beginning of the step.
    pub timestamp: Timestamp,
    pub model: Option<String>,
    pub key: Option<String>,
    /// Empty if requests named no end user.
    pub end_user: Option<String>,
    /// Empty if requests set no tag.
    pub tag: Option<String>,
    pub provider: Option<String>,
    pub provider_model: Option<String>,
    #[serde(flatten)]
    pub sum: ModelUsageSum,
}

/// Numbers of calls and tokens, and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsageSum {
    pub calls: i64,
    /// Calls that got no answer.
    pub failed_calls: i64,
    /// Calls whose tokens were counted by this server, because the provider did not report them.
    pub estimated_calls: i64,
    /// Includes what the provider read from its cache.
    pub input_tokens: i64,
    /// Includes reasoning tokens.
    pub output_tokens: i64,
    pub total_tokens: i64,
    pub cached_tokens: i64,
    pub cache_write_tokens: i64,
    pub reasoning_tokens: i64,
    /// Exact cost in billionths of a US dollar.
    pub cost_nanodollars: i64,
    /// Cost in US dollars.
    pub cost: f64,
}

impl From<UsageSum> for ModelUsageSum {
    fn from(sum: UsageSum) -> Self {
        Self {
            calls: sum.calls,
            failed_calls: sum.failed,
            estimated_calls: sum.estimated,
            input_tokens: sum.input,
            output_tokens: sum.output,
            total_tokens: sum.input.saturating_add(sum.output),
            cached_tokens: sum.cached,
            cache_write_tokens: sum.cache_written,
            reasoning_tokens: sum.reasoning,
            cost_nanodollars: sum.cost,
            cost: sum.cost as f64 / 1e9,
        }
    }
}
