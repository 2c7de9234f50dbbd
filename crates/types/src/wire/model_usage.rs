//! What models were used.

use crate::Timestamp;
use crate::model_books::UsageSum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What the usage of models can be split by.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum ModelUsageBy {
    /// The model that was asked for.
    Model,
    /// The key, or the person behind a token.
    Key,
    /// As requests name them.
    EndUser,
    /// As requests set it.
    Tag,
    /// Who answered.
    Provider,
    /// What the provider calls the model.
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
    /// The whole window is one step.
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

/// What models were used in a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    /// The beginning of the first hour.
    pub start: Timestamp,
    /// The end of the last hour.
    pub end: Timestamp,
    pub resolution: ModelUsageResolution,
    pub group_by: Vec<ModelUsageBy>,
    /// By time, then by what it is split by.
    pub data: Vec<ModelUsageEntry>,
    /// The sum of all of it.
    pub total: ModelUsageSum,
}

/// What one group used in one step.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsageEntry {
    /// The beginning of the step.
    pub timestamp: Timestamp,
    pub model: Option<String>,
    pub key: Option<String>,
    /// Empty where requests named none.
    pub end_user: Option<String>,
    /// Empty where requests set none.
    pub tag: Option<String>,
    pub provider: Option<String>,
    pub provider_model: Option<String>,
    #[serde(flatten)]
    pub sum: ModelUsageSum,
}

/// Calls, their tokens and their cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsageSum {
    pub calls: i64,
    /// Of the calls, those that got no answer.
    pub failed_calls: i64,
    /// Of the calls, those whose tokens were counted here, because the provider did not say.
    pub estimated_calls: i64,
    /// With what the provider had in a cache.
    pub input_tokens: i64,
    /// With those of reasoning.
    pub output_tokens: i64,
    pub total_tokens: i64,
    pub cached_tokens: i64,
    pub cache_write_tokens: i64,
    pub reasoning_tokens: i64,
    /// Billionths of a US dollar: exact.
    pub cost_nanodollars: i64,
    /// US dollars.
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
