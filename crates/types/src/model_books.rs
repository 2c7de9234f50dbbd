//! What servers and the store tell each other about limits and usage of models.

use crate::Timestamp;
use crate::ids::{ResourceId, WorkspaceId};
use crate::kinds::model::ModelType;
use crate::models::{LimitMeasure, ModelCall, ModelOutcome};
use crate::time::HOUR_MS;
use serde::{Deserialize, Serialize};

/// One window of a limit, for one of the subjects that it counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LimitAccount {
    pub limit: String,
    pub measure: LimitMeasure,
    /// The model, workspace, key or end user whose usage is counted.
    pub subject: String,
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
}

/// What one server moves into the store and requests from it, in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Name of the server's ledger.
    pub ledger: String,
    /// Rises by one with each batch. A batch that was already taken in is ignored.
    pub number: i64,
    /// Position in the ledger's journal up to which records are included.
    pub position: i64,
    /// Amounts used of accounts. They are deducted from what the ledger was granted.
    pub used: Vec<(LimitAccount, i64)>,
    /// Amounts that were granted and are not needed.
    pub given_back: Vec<(LimitAccount, i64)>,
    pub wants: Vec<Want>,
    pub usage: Vec<(UsageKey, UsageSum)>,
}

/// A request to hold some amount of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    pub account: LimitAccount,
    /// Amount of the limit.
    pub amount: i64,
    /// Amount that the ledger wants to hold when the batch is done.
    pub hold: i64,
}

/// The state of an account after a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub account: LimitAccount,
    /// Amount used by all ledgers.
    pub used: i64,
    /// Amount that the asking ledger holds.
    pub held: i64,
    /// Amount that other ledgers hold.
    pub elsewhere: i64,
}

/// Where a ledger resumes after a start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    pub number: i64,
    pub position: i64,
    pub held: Vec<(LimitAccount, i64)>,
}

/// The dimensions by which usage is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageKey {
    /// Hours since 1970-01-01.
    pub hour: i64,
    pub workspace: WorkspaceId,
    pub model: String,
    pub model_id: ResourceId,
    pub key: String,
    pub end_user: Option<String>,
    pub tag: Option<String>,
    pub provider: ModelType,
    pub provider_model: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageSum {
    pub calls: i64,
    /// Calls that got no answer from the provider.
    pub failed: i64,
    /// Calls for which some amount was counted here, because the provider did not state it.
    pub estimated: i64,
    pub input: i64,
    pub output: i64,
    pub cached: i64,
    pub cache_written: i64,
    pub reasoning: i64,
    /// Cost in nanodollars.
    pub cost: i64,
}

/// Value at which a sum stops growing: two of them can still be added.
pub const SUM_MAX: i64 = 1 << 61;

impl UsageKey {
    pub fn of(call: &ModelCall) -> Self {
        Self {
            hour: call.at.ms().div_euclid(HOUR_MS),
            workspace: call.workspace.clone(),
            model: word(&call.model),
            model_id: call.model_id.clone(),
            key: word(&call.key),
            end_user: call.end_user.as_deref().map(word).filter(|user| !user.is_empty()),
            tag: call.tag.as_deref().map(word).filter(|tag| !tag.is_empty()),
            provider: call.provider,
            provider_model: word(&call.provider_model),
        }
    }
}

impl UsageSum {
    pub fn of(call: &ModelCall) -> Self {
        let usage = &call.usage;
        Self {
            calls: 1,
            failed: i64::from(matches!(call.outcome, ModelOutcome::Failed(_))),
            estimated: i64::from(usage.estimated),
            input: whole(usage.input),
            output: whole(usage.output),
            cached: whole(usage.cached),
            cache_written: whole(usage.cache_written),
            reasoning: whole(usage.reasoning),
            cost: whole(call.cost),
        }
    }

    pub fn add(&mut self, more: &Self) {
        let sum = |a: &mut i64, b: i64| *a = a.saturating_add(b).min(SUM_MAX);
        sum(&mut self.calls, more.calls);
        sum(&mut self.failed, more.failed);
        sum(&mut self.estimated, more.estimated);
        sum(&mut self.input, more.input);
        sum(&mut self.output, more.output);
        sum(&mut self.cached, more.cached);
        sum(&mut self.cache_written, more.cache_written);
        sum(&mut self.reasoning, more.reasoning);
        sum(&mut self.cost, more.cost);
    }
}

/// Returns what one call used of a measure.
pub fn used_by(call: &ModelCall, measure: LimitMeasure) -> i64 {
    match measure {
        LimitMeasure::Cost => whole(call.cost),
        LimitMeasure::Requests => 1,
        LimitMeasure::InputTokens => whole(call.usage.input),
        LimitMeasure::OutputTokens => whole(call.usage.output),
        LimitMeasure::TotalTokens => whole(call.usage.total()),
    }
}

/// Caps counts beyond what any provider can mean, so that a sum can hold many of them.
fn whole(count: u64) -> i64 {
    const MOST: i64 = 1 << 45;
    i64::try_from(count).unwrap_or(MOST).min(MOST)
}

/// Shortens and cleans a name from a caller or provider, so that every database can hold and index
/// it.
pub fn word(text: &str) -> String {
    const BYTES_MAX: usize = 256;
    let mut ends = (0..=text.len().min(BYTES_MAX)).rev();
    let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].replace('\0', "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_between_letters() {
        assert_eq!(word("a\0b"), "a?b");
        let long = format!("x{}", "ä".repeat(200));
        assert_eq!(word(&long), format!("x{}", "ä".repeat(127)));
        assert_eq!(word(&long[..256 - 1]), &long[..255]);
    }

    #[test]
    fn sums_stop_growing() {
        let mut sum = UsageSum { cost: SUM_MAX - 1, ..UsageSum::default() };
        sum.add(&UsageSum { cost: i64::MAX, calls: 1, ..UsageSum::default() });
        assert_eq!((sum.cost, sum.calls), (SUM_MAX, 1));
    }
}
