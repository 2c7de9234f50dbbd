//! What a call asks of its limits, and what it got.

use super::window::window;
use std::sync::Arc;
use types::Timestamp;
use types::kinds::policy::LimitPer;
use types::model_books::{LimitAccount, word};
use types::models::ModelLimit;

/// The most that a call can take of a limit.
#[derive(Debug, Clone)]
pub struct Hold {
    pub limit: Arc<ModelLimit>,
    /// Whose use is counted. Depending on `limit.per` that is the id of the model or of the
    /// workspace, the key, or the end user.
    pub subject: String,
    pub most: i64,
}

/// One hold, in the current window.
pub(super) struct Asked<'h> {
    pub(super) account: LimitAccount,
    pub(super) hold: &'h Hold,
    pub(super) most: i64,
}

/// What was reserved in one account.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub(super) account: LimitAccount,
    /// What is counted if nobody settles it.
    pub(super) most: i64,
    /// Less than `most` if the call may cross its limit.
    pub(super) reserved: i64,
}

/// Finds the account of each hold in the current window. Holds of the same account count once, with
/// the largest amount.
pub(super) fn asked(holds: &[Hold], now: Timestamp) -> Vec<Asked<'_>> {
    let mut all: Vec<Asked<'_>> = Vec::with_capacity(holds.len());
    for hold in holds {
        let limit = &hold.limit;
        let (starts_at, ends_at) = window(now, limit.granularity, limit.step);
        let account = LimitAccount {
            limit: limit.id.clone(),
            measure: limit.measure,
            subject: subject(limit.per, &hold.subject),
            starts_at,
            ends_at,
        };
        let most = hold.most.max(0);
        match all.iter_mut().find(|asked| asked.account == account) {
            Some(asked) => asked.most = asked.most.max(most),
            None => all.push(Asked { account, hold, most }),
        }
    }
    all
}

/// Builds the name under which an account counts a subject. The prefix keeps subjects of different
/// sorts apart.
pub(super) fn subject(per: LimitPer, subject: &str) -> String {
    let sort = match per {
        LimitPer::Model => "model",
        LimitPer::Workspace => "workspace",
        LimitPer::Key => "key",
        LimitPer::EndUser => "user",
    };
    word(&format!("{sort}:{subject}"))
}
