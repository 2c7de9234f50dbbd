//! What each workspace stores in a day. Everything that is stored has a limit of its own, but there
//! is none on how often.

use parking_lot::Mutex;
use std::collections::HashMap;
use types::Timestamp;
use types::ids::WorkspaceId;
use types::time::DAY_MS;

/// Returns the number of the day (UTC).
pub(crate) fn day(now: Timestamp) -> i64 {
    now.ms().div_euclid(DAY_MS)
}

/// Bytes that were stored today (UTC), as this run of the program counts them.
#[derive(Debug, Default)]
pub struct Daily(Mutex<Today>);

#[derive(Debug, Default)]
struct Today {
    day: i64,
    bytes: HashMap<WorkspaceId, u64>,
}

impl Daily {
    /// Counts bytes that are about to be stored. Returns false if that would be more than `max`.
    pub fn take(&self, workspace: &WorkspaceId, bytes: u64, max: u64, now: Timestamp) -> bool {
        let day = day(now);
        let mut today = self.0.lock();
        if today.day != day {
            *today = Today { day, bytes: HashMap::new() };
        }
        let stored = today.bytes.entry(workspace.clone()).or_default();
        let all = stored.saturating_add(bytes);
        let fits = all <= max;
        if fits {
            *stored = all;
        }
        fits
    }

    /// Takes back bytes that were counted at `then` and are not stored after all.
    pub fn give_back(&self, workspace: &WorkspaceId, bytes: u64, then: Timestamp) {
        let mut today = self.0.lock();
        if today.day == day(then)
            && let Some(stored) = today.bytes.get_mut(workspace)
        {
            *stored = stored.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_bytes_for_each_workspace() {
        let (daily, now) = (Daily::default(), Timestamp::from_ms(DAY_MS * 20_000));
        let [one, other] = ["wsp_a", "wsp_b"].map(WorkspaceId::known);
        assert!(daily.take(&one, 60, 100, now));
        assert!(!daily.take(&one, 60, 100, now));
        assert!(daily.take(&one, 40, 100, now), "what was refused does not count");
        daily.give_back(&one, 40, now);
        assert!(daily.take(&one, 40, 100, now) && !daily.take(&one, 1, 100, now));
        assert!(daily.take(&other, 100, 100, now));
        assert!(!daily.take(&other, 1, 100, now.plus_ms(DAY_MS - 1)));
        assert!(daily.take(&other, 100, 100, now.plus_ms(DAY_MS)));
        daily.give_back(&other, 100, now);
        assert!(!daily.take(&other, 1, 100, now.plus_ms(DAY_MS)), "that was another day's");
    }
}
