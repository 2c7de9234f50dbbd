//! Costs of usage, and budgets.

use crate::Timestamp;
use crate::parts::{Sensitive, limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// Pattern of a price, with few enough digits that its product with any possible usage is exact.
pub(crate) const PRICE: &str = r"^(0|[1-9][0-9]{0,5})(\.[0-9]{1,12})?$";
pub(crate) const AMOUNT: &str = r"^(0|[1-9][0-9]{0,8})(\.[0-9]{1,4})?$";
const VERSIONS_MAX: usize = 1000;
const THRESHOLDS_MAX: usize = 10;
const THRESHOLD_MAX: i64 = 1000;
const SECRET_MIN: usize = 16;

/// The price of one unit in US dollars, by billing dimension. Decimals are texts, so that they are
/// never rounded on the way.
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
    /// Versions, oldest first.
    #[schemars(length(max = VERSIONS_MAX))]
    pub versions: Vec<PriceVersion>,
}

/// One version of the prices. A dimension that it does not name keeps its price.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PriceVersion {
    /// Start of validity: a full hour in UTC. Defaults to the next full hour.
    pub valid_from: Option<Timestamp>,
    #[schemars(schema_with = "price_map")]
    pub prices: PriceMap,
}

/// The request to create or change a budget.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetRequest {
    /// US dollars per calendar month (UTC), as a decimal text.
    #[schemars(regex(pattern = AMOUNT))]
    pub amount: String,
    /// Name of the workspace the budget is for. If absent, it is for the whole account.
    #[schemars(length(max = limits::WORD_MAX), regex(pattern = limits::ONE_LINE))]
    pub workspace: Option<String>,
    /// Percentages of the amount at which the webhook is called. Default: 80 and 100.
    #[schemars(length(max = THRESHOLDS_MAX), inner(range(min = 1, max = THRESHOLD_MAX)))]
    pub thresholds: Option<Vec<i64>>,
    /// True to refuse new sandboxes and executions once the amount is spent.
    pub hard_limit: Option<bool>,
    /// Address that is called when a threshold is reached.
    #[schemars(length(max = limits::URL_MAX))]
    pub webhook_url: Option<String>,
    /// Secret that signs the calls. If absent, the current one stays while the address has the same
    /// host; otherwise the server makes one and shows it once. The mask keeps the current one, too.
    #[schemars(length(max = limits::WORD_MAX))]
    pub webhook_secret: Option<Sensitive<String>>,
}

/// A budget, and how much of it was spent this month.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    pub name: String,
    /// US dollars per calendar month (UTC), as a decimal text.
    pub amount: String,
    pub workspace: Option<String>,
    pub thresholds: Vec<i64>,
    pub hard_limit: bool,
    pub webhook_url: Option<String>,
    /// Shown in clear text only in the answer to the request that set it.
    pub webhook_secret: Option<Sensitive<String>>,
    /// Beginning of the month in UTC. `periodEnd` is the beginning of the next month.
    pub period_start: Timestamp,
    pub period_end: Timestamp,
    /// Amount spent this month so far.
    pub spent: String,
    /// True if new sandboxes and executions are refused.
    pub exhausted: bool,
    /// Thresholds that were reached this month, lowest first.
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
    /// Percentage of the budget's amount.
    pub threshold: i64,
    pub amount: String,
    pub spent: String,
    pub reached_at: Timestamp,
}

/// What the webhook of a budget is sent.
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
    /// Fewest characters of a secret that a caller sets.
    pub const SECRET_MIN: usize = SECRET_MIN;
    /// Default thresholds.
    pub const THRESHOLDS: [i64; 2] = [80, 100];
}
