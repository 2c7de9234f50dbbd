//! The instances of sandboxes and deployments on this machine.

use crate::machine::Machine;
use std::collections::HashMap;
use types::ids::ResourceId;
use types::instance::{InstanceName, ReplicaId, RunsFor};

/// An instance of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Present {
    pub(super) launch: u32,
    pub(super) runs: bool,
}

/// All instances, listed once.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    sandboxes: HashMap<ResourceId, Vec<Present>>,
    replicas: Vec<(InstanceName, ReplicaId)>,
}

impl Inventory {
    pub(super) fn of(machine: &dyn Machine) -> Self {
        let mut all = Self::default();
        for seen in machine.instances() {
            match seen.instance.runs_for() {
                Some(RunsFor::Sandbox { id, launch }) => {
                    let present = Present { launch, runs: seen.runs };
                    all.sandboxes.entry(id).or_default().push(present);
                }
                Some(RunsFor::Replica(id)) => all.replicas.push((seen.instance, id)),
                Some(RunsFor::Task(_) | RunsFor::Build(_)) | None => {}
            }
        }
        all
    }

    pub(super) fn of_sandbox(&self, id: &ResourceId) -> &[Present] {
        self.sandboxes.get(id).map_or(&[], Vec::as_slice)
    }

    /// The replicas of all deployments.
    pub(super) fn replicas(&self) -> impl Iterator<Item = &(InstanceName, ReplicaId)> {
        self.replicas.iter()
    }

    pub(super) fn sandboxes(&self) -> impl Iterator<Item = &ResourceId> {
        self.sandboxes.keys()
    }
}

/// Removes an instance. If that fails, it is tried again at the next start; that of a task, with
/// the next heartbeat.
pub(super) async fn retire(machine: &dyn Machine, instance: &InstanceName) {
    if let Err(fault) = machine.retire(instance).await {
        tracing::error!(%fault, %instance, "an instance could not be removed");
    }
}
