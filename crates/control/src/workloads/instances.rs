//! Which instances of sandboxes there are on this machine.

use crate::machine::Machine;
use std::collections::HashMap;
use types::ids::ResourceId;
use types::instance::{InstanceName, RunsFor};

/// An instance of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) instance: InstanceName,
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
            if let Some(RunsFor::Sandbox { id, launch }) = seen.instance.runs_for() {
                let present = Present { instance: seen.instance, launch, runs: seen.runs };
                all.entry(id).or_default().push(present);
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
