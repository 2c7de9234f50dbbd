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
#[error(
    "{name} allows {} {} in each window, {} are left and {} are needed{}",
    amount_text(*.measure, *.amount),
    measure_text(*.measure),
    amount_text(*.measure, *.left),
    amount_text(*.measure, *.needs),
    if never_fits(*.measure, *.amount, *.needs) { HOPELESS } else { "" }
)]
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

/// Ends the message of a refusal that no other window would change.
const HOPELESS: &str =
    ": this request alone may need more than the limit allows, so set a lower `max_tokens`";

impl OverLimit {
    /// Returns whether the call would not fit into an empty window either, so that `retry_after`
    /// does not help. Of tokens, the call that crosses a limit is served.
    pub const fn never_fits(&self) -> bool {
        never_fits(self.measure, self.amount, self.needs)
    }
}

const fn never_fits(measure: LimitMeasure, amount: i64, needs: i64) -> bool {
    matches!(measure, LimitMeasure::Cost) && needs > amount
}

/// Names what a limit counts, for messages.
pub const fn measure_text(measure: LimitMeasure) -> &'static str {
    match measure {
        LimitMeasure::Cost => "US dollars",
        LimitMeasure::Requests => "requests",
        LimitMeasure::InputTokens => "input tokens",
        LimitMeasure::OutputTokens => "output tokens",
        LimitMeasure::TotalTokens => "tokens",
    }
}

/// Formats an amount in what [`measure_text`] names.
fn amount_text(measure: LimitMeasure, amount: i64) -> String {
    const NANO: i64 = 1_000_000_000;
    match measure {
        LimitMeasure::Cost => {
            let text = format!("{}.{:09}", amount / NANO, amount % NANO);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => amount.to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_told_in_dollars() {
        let text = |amount| amount_text(LimitMeasure::Cost, amount);
        let told = [0, 1, 100_000_000, 10_000_000_000, 50_250_000_000].map(text);
        assert_eq!(told, ["0", "0.000000001", "0.1", "10", "50.25"]);
        assert_eq!(amount_text(LimitMeasure::Requests, 100), "100");
    }
}
