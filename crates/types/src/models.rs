//! The model gateway: what those who decide, those who serve and those who count say to each other.

use crate::ids::{ResourceId, WorkspaceId};
use crate::kinds::model::{
    ModelCache, ModelFailure, ModelHook, ModelRequestLog, ModelRouting, ModelType,
};
use crate::kinds::policy::{Granularity, LimitPer};
use crate::parts::{Sensitive, TextMap, dollars};
use crate::wire::ApiKeyBudget;
use crate::{Problems, Timestamp};
use serde::{Deserialize, Serialize};

/// How a model is reached, as the data plane is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelRoute {
    pub id: ResourceId,
    pub workspace: WorkspaceId,
    pub workspace_name: String,
    pub name: String,
    pub revision: String,
    /// Why it takes no requests. The text completes "the model …".
    pub off: Option<String>,
    /// None: it only leads to other models.
    pub provider: Option<ModelProvider>,
    pub routing: ModelRouting,
    /// Of the policies that it names, and of its workspace.
    pub limits: Vec<ModelLimit>,
    pub cache: Option<ModelCache>,
    pub request_log: Option<ModelRequestLog>,
    pub hooks: Vec<ModelHook>,
}

/// Who answers for a model, with what it takes to ask there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelProvider {
    pub kind: ModelType,
    /// What the provider calls the model. None: what the caller calls it.
    pub model: Option<String>,
    pub endpoint_name: Option<String>,
    pub organization: Option<String>,
    /// The connection, by its name, where messages have to name it.
    pub connection: Option<String>,
    /// The connection's settings, such as `endpoint`.
    pub config: TextMap,
    /// The connection's secrets, open, or a token that was made of them.
    pub secrets: Sensitive<TextMap>,
    /// Whether test credentials are used.
    pub sandbox: bool,
}

/// What is counted. In the order of how strict a limit of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitMeasure {
    /// Nanodollars. Never passed: a request needs what it may cost at most.
    Cost,
    /// Never passed.
    Requests,
    /// Of these three, the request that crosses the limit is served, alone.
    InputTokens,
    OutputTokens,
    TotalTokens,
}

/// One amount that may be used in each window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLimit {
    /// The policy or the key that sets it, so that it counts on when its amount changes.
    pub id: String,
    /// What messages call that, such as ``policy `monthly` ``.
    pub name: String,
    pub measure: LimitMeasure,
    pub amount: i64,
    pub per: LimitPer,
    pub granularity: Granularity,
    /// Periods of a window, one at least.
    pub step: u32,
}

/// Amounts as policies and keys name them. Of what is absent or 0 there is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Amounts<'a> {
    /// US dollars.
    pub cost: Option<&'a str>,
    pub requests: Option<i64>,
    pub input: Option<i64>,
    pub output: Option<i64>,
    pub total: Option<i64>,
}

impl Amounts<'_> {
    /// What each of them limits, and to how much.
    pub fn measured(self) -> Vec<(LimitMeasure, i64)> {
        let cost = self.cost.and_then(dollars::nanodollars);
        let all = [
            (LimitMeasure::Cost, cost),
            (LimitMeasure::Requests, self.requests),
            (LimitMeasure::InputTokens, self.input),
            (LimitMeasure::OutputTokens, self.output),
            (LimitMeasure::TotalTokens, self.total),
        ];
        let limits = all.into_iter().filter_map(|(measure, amount)| Some((measure, amount?)));
        limits.filter(|(_, amount)| *amount > 0).collect()
    }

    /// Refuses money that is none. Tokens of 0 are not limited; whoever says money means an amount.
    pub fn check(self, field: &str, problems: &mut Problems) {
        let Some(cost) = self.cost else { return };
        match dollars::nanodollars(cost) {
            Some(1..) => {}
            Some(_) => problems.add(format!("{field}.cost"), "must be more than 0"),
            None => {
                let rule = "must be US dollars as a plain decimal such as `12.50`, with at most nine places";
                problems.add(format!("{field}.cost"), rule);
            }
        }
    }

    /// Refuses amounts that limit nothing.
    pub fn check_some(self, field: &str, problems: &mut Problems) {
        self.check(field, problems);
        if self.cost.is_none() && self.measured().is_empty() {
            let rule = "needs at least one amount: cost, requests, input, output or total";
            problems.add(field, rule);
        }
    }
}

/// The models that a key is for, as whoever made the key wished it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyModels {
    /// By their names. Empty: all.
    pub models: Vec<String>,
    pub budget: Option<ApiKeyBudget>,
}

impl KeyModels {
    /// What the key of this id may do.
    pub fn right(&self, id: &str, name: &str) -> ModelRight {
        let limits = self.budget.iter().flat_map(|budget| {
            let shown = if name.is_empty() { id } else { name };
            budget.amounts().measured().into_iter().map(move |(measure, amount)| ModelLimit {
                id: id.to_owned(),
                name: format!("key `{shown}`"),
                measure,
                amount,
                per: LimitPer::Key,
                granularity: budget.granularity,
                step: window_step(budget.step),
            })
        });
        ModelRight { models: self.models.clone(), limits: limits.collect() }
    }
}

/// Periods of a window as a wish says them.
pub fn window_step(wished: Option<i64>) -> u32 {
    wished.and_then(|step| u32::try_from(step).ok()).map_or(1, |step| step.max(1))
}

/// What a key that is for models alone may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRight {
    /// By their names. Empty: all of its workspace.
    pub models: Vec<String>,
    pub limits: Vec<ModelLimit>,
}

/// Tokens of one answer. `input` includes `cached`, `output` includes `reasoning`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    /// Of the input, what the provider had in a cache.
    pub cached: u64,
    /// Of the input, what it wrote into one.
    pub cache_written: u64,
    /// Of what it wrote, what it keeps for an hour, which costs more. Records of before lack it.
    #[serde(default)]
    pub cache_written_hour: u64,
    pub reasoning: u64,
    /// Whether any of it was counted here, because the provider did not say.
    pub estimated: bool,
}

impl TokenUsage {
    pub const fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// One call of a model, as it is metered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCall {
    pub at: Timestamp,
    pub workspace: WorkspaceId,
    /// The model that was asked for, also where another answered.
    pub model: String,
    pub model_id: ResourceId,
    /// Who answered.
    pub provider: ModelType,
    pub provider_model: String,
    /// The key, or the person behind a token.
    pub key: String,
    pub end_user: Option<String>,
    pub tag: Option<String>,
    pub usage: TokenUsage,
    /// Nanodollars, by the price table of this version.
    pub cost: u64,
    pub prices: String,
    pub outcome: ModelOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModelOutcome {
    Answered,
    /// Out of the cache: nobody was asked.
    Cached,
    /// The caller hung up.
    Aborted,
    /// The provider broke off, or this server was killed.
    Interrupted,
    Failed(ModelFailure),
}

/// What the log of a model has of one request, if it has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelLogEntry {
    pub call: ModelCall,
    pub method: String,
    pub path: String,
    pub status: u16,
    pub first_byte_ms: u64,
    pub took_ms: u64,
    /// Models that were asked before the one that answered, and why they did not.
    pub tried: Vec<(String, ModelFailure)>,
    /// Redacted, and cut to what a line may have.
    pub request: Option<String>,
    pub answer: Option<String>,
    /// How many requests came before it that are not told, because there were too many.
    pub left_out: u64,
}

/// Something that the management side asks of a service out there: a list of models, an access token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideRequest {
    pub method: &'static str,
    pub url: String,
    pub headers: Vec<(String, Sensitive<String>)>,
    pub body: Sensitive<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideAnswer {
    pub status: u16,
    pub body: Sensitive<Vec<u8>>,
}
