//! Limits how many names chosen by callers get a count of their own in each hour. Without that, one
//! workspace could fill the store with them.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use types::Timestamp;
use types::ids::WorkspaceId;
use types::model_books::UsageKey;
use types::time::HOUR_MS;

/// Stands for all names that do not get a count of their own.
const OTHERS: &str = "(others)";
/// How long the names of an hour are remembered: calls may end long after they began.
const HOURS_KEPT: i64 = 2;

/// The keys that got a count of their own lately, as hashes.
#[derive(Default)]
pub(super) struct Apart {
    seen: HashMap<(WorkspaceId, i64), HashSet<u64>>,
    hasher: RandomState,
}

impl Apart {
    /// Returns the key under which a call is counted.
    pub(super) fn counted(&mut self, key: UsageKey, is_full: bool, max: usize) -> UsageKey {
        let hash = self.hasher.hash_one(&key);
        let seen = self.seen.entry((key.workspace.clone(), key.hour)).or_default();
        if is_full || (seen.len() >= max && !seen.contains(&hash)) {
            return together(key);
        }
        seen.insert(hash);
        key
    }

    pub(super) fn forget_before(&mut self, now: Timestamp) {
        let first = now.ms().div_euclid(HOUR_MS) - HOURS_KEPT;
        self.seen.retain(|(_, hour), _| *hour >= first);
    }
}

/// Replaces the names that callers choose by one name for all.
fn together(key: UsageKey) -> UsageKey {
    let others = |_| OTHERS.to_owned();
    UsageKey {
        end_user: key.end_user.map(others),
        tag: key.tag.map(others),
        provider_model: OTHERS.to_owned(),
        ..key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::ids::ResourceId;
    use types::kinds::model::ModelType;

    fn key(workspace: &str, hour: i64, user: &str) -> UsageKey {
        UsageKey {
            hour,
            workspace: WorkspaceId::known(workspace),
            model: "m".into(),
            model_id: ResourceId::known("res_m"),
            key: "key".into(),
            end_user: Some(user.into()),
            tag: None,
            provider: ModelType::Openai,
            provider_model: "gpt".into(),
        }
    }

    #[test]
    fn each_workspace_has_its_own_number_of_names_in_each_hour() {
        let mut apart = Apart::default();
        let mut user = |workspace: &str, hour, user: &str| {
            apart.counted(key(workspace, hour, user), false, 2).end_user.unwrap()
        };
        assert_eq!([user("a", 1, "x"), user("a", 1, "y")], ["x", "y"]);
        assert_eq!(user("a", 1, "z"), OTHERS);
        assert_eq!([user("a", 1, "y"), user("a", 2, "z"), user("b", 1, "z")], ["y", "z", "z"]);
        apart.forget_before(Timestamp::from_ms(4 * HOUR_MS));
        assert_eq!(apart.seen.len(), 1);
    }
}
