//! What usage costs, and what may be spent.

use crate::Timestamp;
use crate::parts::{Sensitive, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// Digits of a price: so many of all usage that there can be still make an exact cost.
const PRICE: &str = r"^(0|[1-9][0-9]{0,5})(\.[0-9]{1,12})?$";
const AMOUNT: &str = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,4})?$";
const VERSIONS_MAX: usize = 1000;
const THRESHOLDS_MAX: usize = 10;
const THRESHOLD_MAX: i64 = 1000;
const SECRET_MIN: usize = 16;

/// The price of one unit by billing dimension, in US dollars. Decimals are texts, so that none is rounded on its way.
pub type PriceMap = BTreeMap<String, String>;

fn price_map(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "pattern": PRICE},
        "minProperties": 1,
        "maxProperties": limits::LIST_MAX,
    })
}

/// The price book of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountPrices {
    /// Oldest first.
    #[schemars(length(max = VERSIONS_MAX))]
    pub versions: Vec<PriceVersion>,
}

/// What changes with one version. A dimension that it does not name keeps its price.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriceVersion {
    /// A full hour in UTC. Absent in a request: the next one.
    pub valid_from: Option<Timestamp>,
    #[schemars(schema_with = "price_map")]
    pub prices: PriceMap,
}

/// What is wished of a budget.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetRequest {
    /// US dollars in a calendar month (UTC), a decimal as text.
    #[schemars(regex(pattern = AMOUNT))]
    pub amount: String,
    /// Name of the workspace that it is for. Absent: the whole account.
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub workspace: Option<String>,
    /// Shares of the amount that are told of, in percent. Absent: 80 and 100.
    #[schemars(length(max = THRESHOLDS_MAX), inner(range(min = 1, max = THRESHOLD_MAX)))]
    pub thresholds: Option<Vec<i64>>,
    /// Whether new sandboxes and executions are refused while the amount is spent.
    pub hard_limit: Option<bool>,
    /// Is called when a threshold is reached.
    #[schemars(length(max = limits::URL_MAX))]
    pub webhook_url: Option<String>,
    /// Signs the calls. Absent: made by the server and shown once. The mask keeps the one that there is.
    #[schemars(length(max = limits::WORD_MAX))]
    pub webhook_secret: Option<Sensitive<String>>,
}

/// A budget, and how it stands in this month.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    pub name: String,
    /// US dollars in a calendar month (UTC), a decimal as text.
    pub amount: String,
    pub workspace: Option<String>,
    pub thresholds: Vec<i64>,
    pub hard_limit: bool,
    pub webhook_url: Option<String>,
    /// In clear text only in the answer to the request that made it.
    pub webhook_secret: Option<Sensitive<String>>,
    /// The month, in UTC: its beginning, and the beginning of the next.
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    /// What was spent in the month so far.
    pub spent: String,
    /// Whether new sandboxes and executions are refused.
    pub exhausted: bool,
    /// The thresholds that were reached in this month, lowest first.
    pub alerts: Vec<BudgetAlert>,
    pub created_at: Timestamp,
    pub created_by: String,
    pub updated_at: Timestamp,
    pub updated_by: String,
}

/// A threshold that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetAlert {
    /// In percent of `amount`.
    pub threshold: i64,
    pub amount: String,
    pub spent: String,
    pub reached_at: Timestamp,
}

/// What the webhook of a budget is told.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetCall {
    pub account: String,
    pub budget: String,
    pub workspace: Option<String>,
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    #[serde(flatten)]
    pub alert: BudgetAlert,
    pub hard_limit: bool,
}

impl BudgetRequest {
    /// Secrets of callers have at least so many characters.
    pub const SECRET_MIN: usize = SECRET_MIN;
    /// When nothing else is said.
    pub const THRESHOLDS: [i64; 2] = [80, 100];
}
