//! Types that the control plane, the data plane and the meter share about models.

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
    /// Reason why it takes no requests. The text completes "the model …".
    pub off: Option<String>,
    /// `None` if the model only forwards to other models.
    pub provider: Option<ModelProvider>,
    pub routing: ModelRouting,
    /// Limits from the policies that it names, and from its workspace.
    pub limits: Vec<ModelLimit>,
    pub cache: Option<ModelCache>,
    pub request_log: Option<ModelRequestLog>,
    pub hooks: Vec<ModelHook>,
}

/// The provider that answers for a model, with what is needed to ask it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelProvider {
    pub kind: ModelType,
    /// The provider's name for the model. `None` means the caller's name is used.
    pub model: Option<String>,
    pub endpoint_name: Option<String>,
    pub organization: Option<String>,
    /// Name of the connection, for messages.
    pub connection: Option<String>,
    /// The connection's settings, such as `endpoint`.
    pub config: TextMap,
    /// The connection's opened secrets, or a token that was made from them.
    pub secrets: Sensitive<TextMap>,
    /// True if test credentials are used.
    pub sandbox: bool,
}

/// What a limit counts, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitMeasure {
    /// Nanodollars. Never exceeded: a request passes only if the most it may cost is still left.
    Cost,
    /// Never exceeded.
    Requests,
    /// This and the next two may be exceeded once: the request that crosses the limit is served,
    /// alone.
    InputTokens,
    OutputTokens,
    TotalTokens,
}

/// An amount that may be used in each window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelLimit {
    /// Id of the policy or key that sets the limit, so that usage still counts when the amount
    /// changes.
    pub id: String,
    /// Name for messages, such as ``policy `monthly` ``.
    pub name: String,
    pub measure: LimitMeasure,
    pub amount: i64,
    pub per: LimitPer,
    pub granularity: Granularity,
    /// Number of periods in a window, at least one.
    pub step: u32,
}

/// The amounts of a policy or key. An amount that is absent or 0 means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Amounts<'a> {
    /// US dollars, as a decimal.
    pub cost: Option<&'a str>,
    pub requests: Option<i64>,
    pub input: Option<i64>,
    pub output: Option<i64>,
    pub total: Option<i64>,
}

impl Amounts<'_> {
    /// Returns the measures that are limited, each with its amount.
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

    /// Refuses a cost that is not a positive amount. A token limit of 0 means no limit, but a cost
    /// must be a real amount.
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

/// The models that a key is for, as requested when the key was created.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyModels {
    /// Names of the models. Empty means all.
    pub models: Vec<String>,
    pub budget: Option<ApiKeyBudget>,
}

impl KeyModels {
    /// Returns the right of the key with this id.
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

/// Returns the number of periods in a window, as a wish states it.
pub fn window_step(wished: Option<i64>) -> u32 {
    wished.and_then(|step| u32::try_from(step).ok()).map_or(1, |step| step.max(1))
}

/// What a key for models only may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRight {
    /// Names of the models. Empty means all of its workspace.
    pub models: Vec<String>,
    pub limits: Vec<ModelLimit>,
}

/// Token counts of one answer. `input` includes `cached`, `output` includes `reasoning`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    /// Part of the input that the provider read from its cache.
    pub cached: u64,
    /// Part of the input that the provider wrote to its cache.
    pub cache_written: u64,
    /// Part of `cache_written` that is kept for an hour, which costs more. Older records lack it.
    #[serde(default)]
    pub cache_written_hour: u64,
    pub reasoning: u64,
    /// True if any of it was counted here, because the provider did not state it.
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
    /// The model that was asked for, even if another one answered.
    pub model: String,
    pub model_id: ResourceId,
    /// The provider that answered.
    pub provider: ModelType,
    pub provider_model: String,
    /// Id of the key, or of the person behind a token.
    pub key: String,
    pub end_user: Option<String>,
    pub tag: Option<String>,
    pub usage: TokenUsage,
    /// Cost in nanodollars, by the price table whose version is in `prices`.
    pub cost: u64,
    pub prices: String,
    pub outcome: ModelOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ModelOutcome {
    Answered,
    /// Answered from the cache: no provider was asked.
    Cached,
    /// The caller closed the connection.
    Aborted,
    /// The provider broke off, or this server was killed.
    Interrupted,
    Failed(ModelFailure),
    /// Refused before a provider was asked, so the call is neither counted nor charged. Only logs
    /// have such calls, whose provider means nothing.
    Refused,
}

impl ModelOutcome {
    /// Returns its name in metrics, which is the same for every failure.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Cached => "cached",
            Self::Aborted => "aborted",
            Self::Interrupted => "interrupted",
            Self::Failed(_) => "failed",
            Self::Refused => "refused",
        }
    }
}

/// What the log of a model records about one request, if the model has one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelLogEntry {
    pub call: ModelCall,
    pub method: String,
    pub path: String,
    pub status: u16,
    /// The code of this server's own error, if the caller got one.
    pub error: Option<String>,
    pub first_byte_ms: u64,
    pub took_ms: u64,
    /// Models that were asked before the one that answered, with their failures.
    pub tried: Vec<(String, ModelFailure)>,
    /// Redacted, and cut to the length that a log line may have.
    pub request: Option<String>,
    pub answer: Option<String>,
    /// Number of requests before this one that were dropped because there were too many.
    pub left_out: u64,
}

/// A request of the management side to an outside service: for a list of models, or an access
/// token.
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
