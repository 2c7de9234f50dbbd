//! Decides who gets the next free slot: the workspace with the fewest running tasks, and within a
//! workspace executions take turns. So ten tasks do not wait behind a hundred thousand of somebody
//! else's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use store::executions::claims::Candidate;
use types::ids::{ExecutionId, WorkspaceId};

/// The free slots of a machine for tasks, or for calls, which take no memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub slots: i64,
    pub memory_mb: i64,
}

impl Room {
    pub(crate) const fn has_any(self) -> bool {
        self.slots > 0 && self.memory_mb > 0
    }
}

/// Returns how many tasks to claim of which executions. `candidates` of a workspace are in their
/// turns, `running` has what each workspace runs on all machines, and `whole_mb` is all memory for
/// tasks here.
///
/// A task that would fit on this machine, but not now, has priority over smaller ones for memory
/// that becomes free: sharing stops at it, or large tasks would never run beside many small ones.
pub(crate) fn share(
    mut room: Room,
    whole_mb: i64,
    candidates: Vec<Candidate>,
    running: &[(WorkspaceId, i64)],
    workspace_max: i64,
) -> BTreeMap<ExecutionId, i64> {
    let running: HashMap<&WorkspaceId, i64> =
        running.iter().map(|(id, count)| (id, *count)).collect();
    let mut turns: BTreeMap<WorkspaceId, VecDeque<Candidate>> = BTreeMap::new();
    for candidate in candidates.into_iter().filter(|one| one.memory_mb <= whole_mb && one.room > 0)
    {
        turns.entry(candidate.workspace.clone()).or_default().push_back(candidate);
    }
    let places =
        turns.keys().map(|id| Reverse((running.get(id).copied().unwrap_or(0), id.clone())));
    let mut waiting: BinaryHeap<_> = places.collect();
    let mut shares = BTreeMap::new();
    while room.slots > 0 {
        let Some(Reverse((count, workspace))) = waiting.pop() else { break };
        let Some(queue) = turns.get_mut(&workspace) else { continue };
        let Some(mut next) = queue.pop_front().filter(|_| count < workspace_max) else { continue };
        if next.memory_mb > room.memory_mb {
            break;
        }
        room.slots -= 1;
        room.memory_mb -= next.memory_mb;
        next.room -= 1;
        *shares.entry(next.id.clone()).or_insert(0) += 1;
        if next.room > 0 {
            queue.push_back(next);
        }
        waiting.push(Reverse((count + 1, workspace)));
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MANY: Room = Room { slots: 10, memory_mb: 10_000 };

    fn candidate(workspace: &str, id: &str, room: i64, memory_mb: i64) -> Candidate {
        Candidate {
            id: ExecutionId::known(id),
            workspace: WorkspaceId::known(workspace),
            memory_mb,
            room,
        }
    }

    #[track_caller]
    fn check(
        room: Room,
        candidates: &[(&str, &str, i64, i64)],
        running: &[(&str, i64)],
        wanted: &[(&str, i64)],
    ) {
        let candidates = candidates
            .iter()
            .map(|(of, id, room, memory)| candidate(of, id, *room, *memory))
            .collect();
        let running: Vec<_> =
            running.iter().map(|(id, count)| (WorkspaceId::known(*id), *count)).collect();
        let shares = share(room, 10_000, candidates, &running, 100);
        let shares: Vec<_> = shares.iter().map(|(id, count)| (id.as_str(), *count)).collect();
        assert_eq!(shares, wanted);
    }

    #[test]
    fn a_few_tasks_do_not_wait_behind_very_many() {
        check(MANY, &[("big", "a", 100_000, 1), ("small", "b", 10, 1)], &[], &[("a", 5), ("b", 5)]);
        check(
            MANY,
            &[("big", "a", 100_000, 1), ("small", "b", 10, 1)],
            &[("big", 100)],
            &[("b", 10)],
        );
        check(
            MANY,
            &[("big", "a", 100_000, 1), ("small", "b", 3, 1)],
            &[("big", 4)],
            &[("a", 7), ("b", 3)],
        );
    }

    #[test]
    fn executions_of_a_workspace_take_turns() {
        check(
            MANY,
            &[("w", "a", 100, 1), ("w", "b", 2, 1), ("w", "c", 100, 1)],
            &[],
            &[("a", 4), ("b", 2), ("c", 4)],
        );
        let one = Room { slots: 1, ..MANY };
        check(one, &[("w", "b", 9, 1), ("w", "a", 9, 1)], &[], &[("b", 1)]);
    }

    #[test]
    fn a_large_task_is_not_overtaken_by_small_ones_but_by_what_never_fits() {
        let tight = Room { slots: 10, memory_mb: 500 };
        check(tight, &[("w", "large", 1, 600), ("w", "small", 9, 10)], &[], &[]);
        check(tight, &[("w", "huge", 1, 20_000), ("w", "small", 2, 10)], &[], &[("small", 2)]);
    }

    #[test]
    fn a_workspace_has_a_limit_of_its_own() {
        check(
            MANY,
            &[("big", "a", 50, 1), ("small", "b", 1, 1)],
            &[("big", 98)],
            &[("a", 2), ("b", 1)],
        );
    }

    proptest! {
        #[test]
        fn nothing_is_given_that_is_not_there(
            slots in 0..20_i64,
            memory in 0..200_i64,
            wishes in prop::collection::vec((0..4_u8, 0..6_i64, 1..60_i64), 0..12),
        ) {
            let candidates: Vec<_> = wishes
                .iter()
                .enumerate()
                .map(|(index, (of, room, memory))| candidate(&of.to_string(), &format!("e{index}"), *room, *memory))
                .collect();
            let shares = share(Room { slots, memory_mb: memory }, 50, candidates.clone(), &[], 100);
            let of = |id: &ExecutionId| candidates.iter().find(|one| one.id == *id).unwrap();
            prop_assert!(shares.values().sum::<i64>() <= slots);
            prop_assert!(shares.iter().map(|(id, count)| of(id).memory_mb * count).sum::<i64>() <= memory);
            prop_assert!(shares.iter().all(|(id, count)| *count <= of(id).room && of(id).memory_mb <= 50));
            // With enough memory, no slot stays empty while somebody could use it.
            let wanted: i64 = candidates.iter().filter(|one| one.memory_mb <= 50).map(|one| one.room).sum();
            let plenty = share(Room { slots, memory_mb: i64::MAX }, 50, candidates.clone(), &[], 100);
            prop_assert_eq!(plenty.values().sum::<i64>(), slots.min(wanted));
        }
    }
}
