//! What a machine has left for further tasks and calls, and which workspaces have the rest.

use super::Dispatcher;
use crate::share::{Room, Slots};
use std::collections::HashMap;
use store::executions::SlotKind;
use types::ids::WorkspaceId;

impl<C> Dispatcher<C> {
    /// Returns what may be claimed: the kinds of slots with free room.
    pub(super) fn rooms(&self) -> Vec<(SlotKind, Room)> {
        let settings = self.queue.settings();
        let used: i64 = self.mine.values().map(|mine| mine.memory_mb).sum();
        let free = |slots: u32, of: SlotKind| {
            let taken = self.mine.values().filter(|mine| mine.slot == of).count();
            i64::from(slots) - i64::try_from(taken).unwrap_or(i64::MAX)
        };
        let tasks = Room {
            slots: free(settings.slots, SlotKind::Task),
            memory_mb: i64::from(settings.memory_mb) - used,
        };
        let calls = Room { slots: free(settings.call_slots, SlotKind::Call), memory_mb: i64::MAX };
        let rooms = [(SlotKind::Task, tasks), (SlotKind::Call, calls)];
        rooms.into_iter().filter(|(_, room)| room.has_any()).collect()
    }

    /// Returns the slots for which something may be claimed, with who has the others.
    pub(super) fn slots(&self) -> Vec<(SlotKind, Slots)> {
        let settings = self.queue.settings();
        let of = |(kind, free)| {
            let (share, whole_mb, used) = match kind {
                SlotKind::Task => {
                    let whole_mb = settings.memory_mb.into();
                    (settings.share_of(settings.slots.into(), whole_mb), whole_mb, self.used())
                }
                // A workspace has its share of all machines (`workspace_calls_max`).
                SlotKind::Call => {
                    (Room { slots: i64::MAX, memory_mb: i64::MAX }, i64::MAX, HashMap::new())
                }
            };
            (kind, Slots { free, whole_mb, share, used })
        };
        self.rooms().into_iter().map(of).collect()
    }

    /// Returns what tasks of each workspace have of this machine.
    fn used(&self) -> HashMap<WorkspaceId, Room> {
        let mut used: HashMap<WorkspaceId, Room> = HashMap::new();
        for mine in self.mine.values().filter(|mine| mine.slot == SlotKind::Task) {
            let Some(workspace) = &mine.workspace else { continue };
            let room = used.entry(workspace.clone()).or_default();
            room.slots += 1;
            room.memory_mb += mine.memory_mb;
        }
        used
    }
}
