//! Why a call may not reserve what it needs.

use super::account::Account;
use super::hold::Asked;
use std::time::Duration;
use types::Timestamp;
use types::models::LimitMeasure;

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{0}")]
    OverLimit(OverLimit),
    /// Nothing can be reserved now: the store is unreachable, the disk is full, or too many calls
    /// wait.
    #[error("limits cannot be checked: {0}")]
    Unavailable(String),
}

/// The limit that was reached, and until when.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} allows {amount} {} in each window, {left} are left and {needs} are needed", measure_text(*.measure))]
pub struct OverLimit {
    /// The id of the limit.
    pub limit: String,
    /// The limit's name in messages.
    pub name: String,
    pub measure: LimitMeasure,
    pub amount: i64,
    /// How much could still be reserved when the call was refused.
    pub left: i64,
    pub needs: i64,
    /// The end of the window.
    pub ends_at: Timestamp,
    pub retry_after: Duration,
}

/// Names what a limit counts, for messages.
pub const fn measure_text(measure: LimitMeasure) -> &'static str {
    match measure {
        LimitMeasure::Cost => "nanodollars",
        LimitMeasure::Requests => "requests",
        LimitMeasure::InputTokens => "input tokens",
        LimitMeasure::OutputTokens => "output tokens",
        LimitMeasure::TotalTokens => "tokens",
    }
}

pub(super) fn no_room() -> Refused {
    Refused::Unavailable("more is counted apart at this server than it has room for".into())
}

/// Builds the refusal. The caller should retry when the window ends, or after `soon` if that is
/// earlier.
pub(super) fn over(
    account: &Account,
    asked: &Asked<'_>,
    now: Timestamp,
    soon: Option<Duration>,
) -> Refused {
    let ends_at = asked.account.ends_at;
    let until_end = Duration::from_millis(u64::try_from(ends_at.since(now)).unwrap_or(0));
    Refused::OverLimit(OverLimit {
        limit: asked.account.limit.clone(),
        name: account.name.clone(),
        measure: asked.account.measure,
        amount: account.amount,
        left: account.spare(),
        needs: asked.most,
        ends_at,
        retry_after: soon.map_or(until_end, |soon| soon.min(until_end)),
    })
}
