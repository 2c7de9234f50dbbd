//! Decides who gets the next free slot: the workspace with the fewest running tasks, and within a
//! workspace executions take turns. So ten tasks do not wait behind a hundred thousand of somebody
//! else's. What one workspace has of a machine is bounded even if nobody else wants the rest: tasks
//! may run for days and are not interrupted when a neighbour comes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use store::executions::claims::Candidate;
use types::ids::{ExecutionId, WorkspaceId};

/// Slots of a machine for tasks, or for calls, which take no memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub slots: i64,
    pub memory_mb: i64,
}

impl Room {
    pub(crate) const fn has_any(self) -> bool {
        self.slots > 0 && self.memory_mb > 0
    }
}

/// The slots of one kind that a machine has, and who has them.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    pub free: Room,
    /// All memory for tasks.
    pub whole_mb: i64,
    /// What one workspace may have.
    pub share: Room,
    pub used: HashMap<WorkspaceId, Room>,
}

/// Why the next task of a workspace is not claimed now.
enum Waits {
    /// Until tasks of its own workspace have ended, or for memory that nobody owes it.
    ForItself,
    /// Until memory is free to which its workspace has a right.
    ForMemory,
}

impl Slots {
    /// Notes that a workspace takes a slot for a task. What is larger than a share of the memory
    /// runs only if it is all that its workspace has here.
    fn take(
        &mut self,
        workspace: &WorkspaceId,
        memory_mb: i64,
        own_max_mb: i64,
    ) -> Result<(), Waits> {
        let used = self.used.entry(workspace.clone()).or_default();
        let own_mb = used.memory_mb + memory_mb;
        let is_oversized = memory_mb > self.share.memory_mb;
        let fits_share =
            if is_oversized { used.slots == 0 } else { own_mb <= self.share.memory_mb };
        if used.slots >= self.share.slots || !fits_share {
            return Err(Waits::ForItself);
        }
        if memory_mb > self.free.memory_mb {
            return Err(if is_oversized { Waits::ForItself } else { Waits::ForMemory });
        }
        if own_mb > own_max_mb {
            return Err(Waits::ForItself);
        }
        *used = Room { slots: used.slots + 1, memory_mb: own_mb };
        self.free = Room { slots: self.free.slots - 1, memory_mb: self.free.memory_mb - memory_mb };
        Ok(())
    }
}

/// Returns how many tasks to claim of which executions. `candidates` of a workspace are in their
/// turns, and `running` has what each workspace runs on all machines.
///
/// A workspace whose next task has to wait gets nothing more, so that its smaller tasks do not
/// overtake a large one for ever. If the task waits for memory that its workspace may have, others
/// get only as much as everybody would have of an even division; so the memory becomes free, and
/// nobody is stopped by tasks of others that run for long.
pub(crate) fn share(
    mut slots: Slots,
    candidates: Vec<Candidate>,
    running: &[(WorkspaceId, i64)],
    workspace_max: i64,
) -> BTreeMap<ExecutionId, i64> {
    let running: HashMap<&WorkspaceId, i64> =
        running.iter().map(|(id, count)| (id, *count)).collect();
    let mut turns: BTreeMap<WorkspaceId, VecDeque<Candidate>> = BTreeMap::new();
    let fits = |one: &Candidate| one.memory_mb <= slots.whole_mb && one.room > 0;
    for candidate in candidates.into_iter().filter(fits) {
        turns.entry(candidate.workspace.clone()).or_default().push_back(candidate);
    }
    let places =
        turns.keys().map(|id| Reverse((running.get(id).copied().unwrap_or(0), id.clone())));
    let mut waiting: BinaryHeap<_> = places.collect();
    let sharers = turns.keys().chain(slots.used.keys()).collect::<BTreeSet<_>>().len();
    let even_mb = slots.whole_mb / i64::try_from(sharers.max(1)).unwrap_or(i64::MAX);
    let mut own_max_mb = i64::MAX;
    let mut shares = BTreeMap::new();
    while slots.free.slots > 0 {
        let Some(Reverse((count, workspace))) = waiting.pop() else { break };
        let Some(queue) = turns.get_mut(&workspace) else { continue };
        let Some(mut next) = queue.pop_front().filter(|_| count < workspace_max) else { continue };
        match slots.take(&workspace, next.memory_mb, own_max_mb) {
            Ok(()) => {}
            Err(Waits::ForItself) => continue,
            Err(Waits::ForMemory) => {
                own_max_mb = even_mb;
                continue;
            }
        }
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
    /// No bound for a workspace.
    const ALL: Room = Room { slots: i64::MAX, memory_mb: i64::MAX };

    fn free(room: Room, whole_mb: i64) -> Slots {
        Slots { free: room, whole_mb, share: ALL, used: HashMap::new() }
    }

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
        let shares = share(free(room, 10_000), candidates, &running, 100);
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

    /// A machine of 10 slots and 1000 MB, of which a workspace may have 8 and 800.
    #[track_caller]
    fn check_shares(
        used: &[(&str, i64, i64)],
        candidates: &[(&str, &str, i64, i64)],
        wanted: &[(&str, i64)],
    ) {
        let used: HashMap<_, _> = used
            .iter()
            .map(|(id, slots, memory_mb)| {
                (WorkspaceId::known(*id), Room { slots: *slots, memory_mb: *memory_mb })
            })
            .collect();
        let taken = |of: fn(&Room) -> i64| used.values().map(of).sum::<i64>();
        let slots = Slots {
            free: Room {
                slots: 10 - taken(|room| room.slots),
                memory_mb: 1000 - taken(|room| room.memory_mb),
            },
            whole_mb: 1000,
            share: Room { slots: 8, memory_mb: 800 },
            used,
        };
        let candidates = candidates
            .iter()
            .map(|(of, id, room, memory)| candidate(of, id, *room, *memory))
            .collect();
        let shares = share(slots, candidates, &[], 100);
        let shares: Vec<_> = shares.iter().map(|(id, count)| (id.as_str(), *count)).collect();
        assert_eq!(shares, wanted);
    }

    #[test]
    fn a_workspace_leaves_slots_and_memory_of_a_machine_to_those_who_come() {
        check_shares(&[], &[("big", "a", 40, 1)], &[("a", 8)]);
        check_shares(&[("big", 8, 8)], &[("big", "a", 40, 1)], &[]);
        check_shares(&[("big", 8, 8)], &[("big", "a", 40, 1), ("new", "b", 9, 1)], &[("b", 2)]);
        check_shares(&[], &[("big", "a", 40, 300)], &[("a", 2)]);
        check_shares(&[("big", 2, 600)], &[("big", "a", 9, 300), ("new", "b", 1, 1)], &[("b", 1)]);
    }

    #[test]
    fn a_task_larger_than_a_share_runs_alone_and_holds_up_nobody_else() {
        check_shares(&[], &[("big", "a", 3, 900), ("new", "b", 1, 100)], &[("a", 1), ("b", 1)]);
        check_shares(&[("big", 1, 1)], &[("big", "a", 1, 900), ("new", "b", 3, 1)], &[("b", 3)]);
        check_shares(&[("new", 1, 200)], &[("big", "a", 1, 900), ("new", "b", 3, 1)], &[("b", 3)]);
        check_shares(&[("big", 1, 900)], &[("big", "b", 3, 1)], &[]);
    }

    #[test]
    fn a_task_that_waits_for_memory_leaves_others_their_even_part() {
        // Long tasks of `old` leave no room for the large one. `new` has its third all the same.
        let large = ("big", "a", 1, 700);
        check_shares(&[("old", 1, 400)], &[large, ("new", "b", 5, 100)], &[("b", 3)]);
        // Of two, each has half: one task more, and the rest is kept for the large one.
        check_shares(&[("old", 1, 400)], &[large, ("old", "b", 5, 100)], &[("b", 1)]);
        check_shares(&[("old", 1, 300)], &[large, ("old", "b", 5, 100)], &[("a", 1)]);
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
            let shares = share(free(Room { slots, memory_mb: memory }, 50), candidates.clone(), &[], 100);
            let of = |id: &ExecutionId| candidates.iter().find(|one| one.id == *id).unwrap();
            prop_assert!(shares.values().sum::<i64>() <= slots);
            prop_assert!(shares.iter().map(|(id, count)| of(id).memory_mb * count).sum::<i64>() <= memory);
            prop_assert!(shares.iter().all(|(id, count)| *count <= of(id).room && of(id).memory_mb <= 50));
            // With enough memory, no slot stays empty while somebody could use it.
            let wanted: i64 = candidates.iter().filter(|one| one.memory_mb <= 50).map(|one| one.room).sum();
            let plenty = share(free(Room { slots, memory_mb: i64::MAX }, 50), candidates.clone(), &[], 100);
            prop_assert_eq!(plenty.values().sum::<i64>(), slots.min(wanted));
        }
    }
}
