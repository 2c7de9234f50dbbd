//! Whose order is next.

use std::collections::{HashMap, VecDeque};
use types::Timestamp;
use types::ids::WorkspaceId;

const HOUR_S: i64 = 3600;

/// The orders that each workspace began within the last hour.
pub(super) struct Turns {
    hour_max: usize,
    begun: HashMap<WorkspaceId, VecDeque<Timestamp>>,
}

impl Turns {
    pub(super) fn new(hour_max: usize) -> Self {
        Self { hour_max, begun: HashMap::new() }
    }

    /// Chooses the workspace with the fewest orders within the last hour, and counts one more for
    /// it. Returns `None` if each has had as many as it may have.
    pub(super) fn next<'a>(
        &mut self,
        waiting: impl Iterator<Item = &'a WorkspaceId>,
        now: Timestamp,
    ) -> Option<&'a WorkspaceId> {
        self.begun.retain(|_, times| {
            while times.front().is_some_and(|time| time.plus_s(HOUR_S) <= now) {
                times.pop_front();
            }
            !times.is_empty()
        });
        let count = |workspace: &WorkspaceId| self.begun.get(workspace).map_or(0, VecDeque::len);
        let next = waiting
            .map(|workspace| (count(workspace), workspace))
            .filter(|(count, _)| *count < self.hour_max)
            .min()?
            .1;
        self.begun.entry(next.clone()).or_default().push_back(now);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspaces_take_turns_within_what_each_may_order_in_an_hour() {
        let [many, few] = ["a", "b"].map(WorkspaceId::known);
        let mut turns = Turns::new(3);
        let mut next = |waiting: &[&WorkspaceId], at_s: i64| {
            let now = Timestamp::from_ms(at_s * 1000);
            turns.next(waiting.iter().copied(), now).map(ToString::to_string)
        };
        let chosen: Vec<_> = (0..3).map_while(|at| next(&[&many], at)).collect();
        assert_eq!(chosen, ["a", "a", "a"]);
        assert_eq!(next(&[&many], 3), None);
        let chosen: Vec<_> = (4..9).map_while(|at| next(&[&many, &few], at)).collect();
        assert_eq!(chosen, ["b", "b", "b"]);
        assert_eq!(next(&[&many, &few], HOUR_S - 1), None);
        assert_eq!(next(&[&many, &few], HOUR_S), Some("a".to_owned()));
    }
}
