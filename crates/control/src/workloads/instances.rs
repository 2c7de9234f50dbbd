//! Which instances of sandboxes there are on this machine.

use super::launch;
use crate::machine::Machine;
use std::collections::HashMap;
use types::ids::ResourceId;

/// An instance of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) launch: u32,
    pub(super) runs: bool,
}

/// All of them, listed once.
#[derive(Debug, Default)]
pub(super) struct Inventory(HashMap<ResourceId, Vec<Present>>);

impl Inventory {
    pub(super) fn of(machine: &dyn Machine) -> Self {
        let mut all: HashMap<ResourceId, Vec<Present>> = HashMap::new();
        for seen in machine.instances() {
            if let Some((id, launch)) = launch::of_instance(&seen.instance) {
                all.entry(id).or_default().push(Present { launch, runs: seen.runs });
            }
        }
        Self(all)
    }

    pub(super) fn of_sandbox(&self, id: &ResourceId) -> &[Present] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn sandboxes(&self) -> impl Iterator<Item = &ResourceId> {
        self.0.keys()
    }
}
