//! Usage and costs of an account.

use crate::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Length of one step of a time series.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    #[default]
    Hourly,
    Daily,
    Weekly,
    Monthly,
}

/// Property by which costs can be grouped.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    Workspace,
    ResourceType,
    ResourceName,
    ResourceUuid,
    BillingDimension,
}

impl GroupBy {
    pub const ALL: [Self; 5] = [
        Self::Workspace,
        Self::ResourceType,
        Self::ResourceName,
        Self::ResourceUuid,
        Self::BillingDimension,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::ResourceType => "resource_type",
            Self::ResourceName => "resource_name",
            Self::ResourceUuid => "resource_uuid",
            Self::BillingDimension => "billing_dimension",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.name() == name)
    }
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountMetrics {
    pub start_time: Timestamp,
    pub end_time: Timestamp,
    pub resolution: Resolution,
    pub summary: AccountMetricsSummary,
    pub data: Vec<AccountMetricsDataEntry>,
    pub meta: AccountMetricsMeta,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountMetricsSummary {
    /// US dollars.
    pub total_cost: f64,
    /// Only present when grouped by billing dimension; otherwise units would be mixed.
    pub total_usage: Option<f64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountMetricsMeta {
    pub has_more: bool,
    /// Cursor of the next page; empty on the last page.
    pub next_cursor: String,
}

/// One group: the properties it was grouped by, and those that follow from them.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountMetricsDataEntry {
    pub workspace: Option<String>,
    pub resource_type: Option<String>,
    pub resource_name: Option<String>,
    pub resource_uuid: Option<String>,
    pub billing_dimension: Option<String>,
    pub summary: EntrySummary,
    /// One point for each step of the window.
    pub timeseries: Vec<AccountMetricsPoint>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntrySummary {
    /// US dollars.
    pub cost: f64,
    pub usage: Option<f64>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountMetricsPoint {
    pub timestamp: Timestamp,
    /// US dollars.
    pub cost: f64,
    pub usage: Option<f64>,
}

/// Values that a parameter can take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsValues {
    pub values: Vec<String>,
}
