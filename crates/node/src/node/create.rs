//! Creates an instance: the order of the steps, and how they are undone when one fails.

use super::Node;
use crate::beginning::Beginning;
use crate::body::{self, Body, Process, Wanted};
use crate::body_kind::BodyKind;
use crate::error::{CreateError, Doing};
use crate::instance::{Holdings, Instance, Origin, View};
use crate::network_pool::Slot;
use crate::records::Record;
use crate::settings::Firewall;
use crate::shares::{Promise, Stake};
use crate::spec::Spec;
use crate::state::State;
use std::sync::Arc;
use types::instance::Happened;

impl Node {
    /// Starts an instance. Its first process runs when this returns.
    pub fn create(&self, spec: &Spec) -> Result<View, CreateError> {
        // This comes first: whoever repeats a launch must not take the instance for missing.
        self.registry.lock().reserve(&spec.id)?;
        let created = match create_reserved(self, spec) {
            Err(CreateError::Launch(error)) if error.is_by_chance() => {
                tracing::warn!(%error, instance = %spec.id, "it is started once more");
                create_reserved(self, spec)
            }
            created => created,
        };
        self.registry.lock().starting.remove(&spec.id);
        let instance = created?;
        Ok(self.view(&instance))
    }
}

fn create_reserved(node: &Node, spec: &Spec) -> Result<Arc<Instance>, CreateError> {
    spec.check()?;
    if let Some(kept) = node.shared.stores.journal.full() {
        return Err(CreateError::Unheard(kept));
    }
    body::check(&node.shared.settings.backend, spec)?;
    // This comes first, so that owners who exceed their share cost the machine nothing.
    let admitted = node.shared.stores.shares.take(spec)?;
    let slot = node.networks.take().doing("prepare a network and users")?;
    let slot = slot.ok_or(CreateError::NoNetwork)?;
    let number = slot.number;
    fence(node, spec, number).inspect_err(|_| node.networks.give_back(number))?;
    let created = in_slot(node, spec, slot, admitted);
    if created.is_err() {
        undo(node, spec);
        match node.change_firewall(number, &spec.firewall, &Firewall::default()) {
            Ok(()) => node.networks.give_back(number),
            // The next start of the node writes the rules anew, and finds the address free.
            Err(error) => {
                tracing::error!(%error, instance = %spec.id, "cannot clear the firewall of a failed start; its address stays taken");
            }
        }
    }
    created
}

/// Tells the firewall whose the packets from a slot are, and what they may reach.
fn fence(node: &Node, spec: &Spec, slot: u32) -> Result<(), CreateError> {
    node.shared.home.assign(slot, &spec.owner).doing("note whose its network is")?;
    // Not recorded: if this process is killed, the next node writes a new table anyway.
    let changed = node.change_firewall(slot, &Firewall::default(), &spec.firewall);
    Ok(changed.doing("write its firewall rules")?)
}

/// Makes the instance in its slot. The order matters: the record is written before anything that
/// would outlive a kill of this process, and the process is recorded only after its start was. A
/// record without a process is swept, however far its start got.
fn in_slot(
    node: &Node,
    spec: &Spec,
    slot: Slot,
    (stake, promise): (Stake, Promise),
) -> Result<Arc<Instance>, CreateError> {
    let (stores, number) = (&node.shared.stores, slot.number);
    let beginning = Beginning::of(&node.shared, spec)?;
    let mut record = record(node, spec, number);
    record.snapshot = beginning.under.as_ref().map(|hold| hold.name.clone());
    stores.records.put(&spec.id, &record).doing("record the instance")?;
    let membership =
        node.shared.groups.join(&spec.owner).doing("join the control groups of its owner")?;
    let group = node.shared.groups.make(spec).doing("make its control groups")?;
    let wanted = Wanted { spec, beginning: &beginning };
    let body = Body::start(&node.shared, &wanted, slot, group)?;
    // From here on only the instance holds its disk.
    let Beginning { under, layers, disk } = beginning;
    drop((layers, disk));
    let identity = body.process().map(Process::identity).transpose();
    record.process = identity.doing("identify its process")?;

    let now = stores.world.now();
    let origin = Origin {
        id: spec.id.clone(),
        slot: number,
        memory_mb: spec.memory_mb,
        body,
        state: State::Running { since: now },
        owner: Some(spec.owner.clone()),
        firewall: spec.firewall.clone(),
        holdings: Holdings { _stake: stake, _membership: Some(membership), _snapshot: under },
        promise: Some(promise),
    };
    let instance = Arc::new(Instance::new(origin, Arc::clone(stores)));
    let happened = Happened::Started { memory_mb: spec.memory_mb };
    stores.journal.record(now, &spec.id, happened);
    stores.records.change(&spec.id, &record).doing("record its process")?;
    node.admit(Arc::clone(&instance)).doing("watch its process")?;
    Ok(instance)
}

/// Returns the record as it is before anything else of the instance exists.
fn record(node: &Node, spec: &Spec, slot: u32) -> Record {
    Record {
        id: Some(spec.id.clone()),
        boot: node.shared.boot.clone(),
        slot,
        memory_mb: spec.memory_mb,
        owner: Some(spec.owner.clone()),
        disks: spec.disks().collect(),
        body: BodyKind::of(&node.shared.settings.backend),
        layers: spec.layers.clone(),
        snapshot: None,
        kept: spec.kept().cloned(),
        is_held: false,
        firewall: spec.firewall.clone(),
        process: None,
        end: None,
    }
}

/// Undoes a failed start. What cannot be undone now is left to the next start of the node, which
/// sweeps records without a process.
fn undo(node: &Node, spec: &Spec) {
    node.dismiss(&spec.id);
    let stores = &node.shared.stores;
    let undone = body::clear(&node.shared, &spec.owner, &spec.id).and_then(|()| {
        stores.journal.record(stores.world.now(), &spec.id, Happened::Destroyed);
        stores.records.remove(&spec.id)
    });
    if let Err(error) = undone {
        tracing::error!(%error, instance = %spec.id, "cannot undo a failed start");
    }
}
