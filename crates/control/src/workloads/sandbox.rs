//! Sandboxes as the background follows them.

use super::followed::{Followed, Look, Reader};
use super::instances::Present;
use super::launch;
use super::reconcile::{self, Wanted, wanted};
use super::{routes, rows};
use crate::control::Control;
use crate::egress;
use crate::engine::{Held, Managed};
use crate::error::Error;
use crate::machine::Machine;
use store::Tx;
use store::resources;
use types::Timestamp;
use types::ids::ResourceId;
use types::kinds::Sandbox;
use types::parts::Status;

impl Followed for Sandbox {
    const ROUTED: bool = true;
    const RUNS: bool = true;

    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        // Checked before the route: if the route says that the instance is not there, a
        // reconciliation must follow, which publishes the route again.
        let differs = differs(reader, &held);
        let route = routes::of_sandbox(reader, tx, &held)?;
        Ok(Look { route, due: due(&held), differs })
    }

    async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
        reconcile::reconcile(control, id).await
    }

    async fn act_when_due(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let (of, id) = (control.clone(), id.clone());
        control.store.write(move |tx| expire(&of, tx, &id)).await
    }
}

fn differs(reader: &Reader<'_>, held: &Held<Sandbox>) -> bool {
    let Some(machine) = reader.control.machine() else { return false };
    let wanted = wanted(&held.state, held.row.status, machine.name());
    let deployed = held.row.status == Some(Status::Deployed);
    let changed = wanted != Wanted::Elsewhere && held.state.rules != held.state.rules_kept;
    match reader.inventory {
        Some(inventory) => {
            // The machine must be told again what an earlier run of this program has told it.
            !is_there(&wanted, deployed, inventory.of_sandbox(&held.row.id))
                || changed
                || (wanted != Wanted::Elsewhere && egress::has_rules(&held.wish))
                // A mount may have been interrupted.
                || (wanted != Wanted::Elsewhere && !held.state.drives.is_empty())
        }
        // Without a list of instances, only a first launch is known to be the only instance.
        None => changed || !(deployed && first_runs(&wanted, &**machine, held)),
    }
}

/// Checks whether exactly the wanted instance is present.
fn is_there(wanted: &Wanted, deployed: bool, present: &[Present]) -> bool {
    match wanted {
        Wanted::Elsewhere => true,
        // The reconciliation knows whether it is being archived already.
        Wanted::Archive(_) => false,
        // It is not known here whether a running instance is asleep, so it is reconciled.
        Wanted::Nothing | Wanted::Rest(_) => present.is_empty(),
        Wanted::Instance(launch) => {
            deployed && matches!(present, [one] if one.launch == *launch && one.runs)
        }
    }
}

fn first_runs(wanted: &Wanted, machine: &dyn Machine, held: &Held<Sandbox>) -> bool {
    *wanted == Wanted::Instance(launch::FIRST)
        && machine.runs(&launch::instance(&held.row.id, &held.state))
}

fn due(held: &Held<Sandbox>) -> Option<Timestamp> {
    match held.row.status {
        Some(Status::Terminated) => ended_at(held).map(|end| end.plus_s(held.wish.retention_s())),
        _ => held.wish.expires_at(held.row.created_at, held.state.last_used_at),
    }
}

fn ended_at(held: &Held<Sandbox>) -> Option<Timestamp> {
    held.state.lifecycle.events.last().map(|event| event.time)
}

/// Ends a sandbox whose time is over, or removes the record of one that has ended.
fn expire(control: &Control, tx: &mut Tx<'_>, id: &ResourceId) -> Result<(), Error> {
    let Some((context, held)) = rows::lock_in::<Sandbox>(control, tx, id)? else { return Ok(()) };
    if due(&held).is_none_or(|due| due > control.world.now()) {
        return Ok(());
    }
    if held.row.is_terminated() {
        return rows::remove::<Sandbox>(control, tx, id);
    }
    Sandbox::release(&context, tx, &held)?;
    resources::delete_below(tx, &held.row, context.actor())?;
    let mut state = held.state.clone();
    // A build that ends later must not start it.
    state.lifecycle.end_build();
    let message = "its time was over, as its spec says";
    state.lifecycle.record("expiration", Status::Terminated, message, control.world.now());
    state.activity = None;
    state.drives.clear();
    rows::put_state(tx, held, state).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_brought_into_its_wished_state() {
        let runs = |launch| Present { launch, runs: true };
        let ended = |launch| Present { launch, runs: false };
        let wanted = Wanted::Instance(2);
        assert!(is_there(&wanted, true, &[runs(2)]));
        assert!(!is_there(&wanted, false, &[runs(2)]), "the row does not say so yet");
        for present in [vec![], vec![ended(2)], vec![runs(1)], vec![runs(1), runs(2)]] {
            assert!(!is_there(&wanted, true, &present), "{present:?}");
        }
        assert!(is_there(&Wanted::Nothing, false, &[]));
        assert!(!is_there(&Wanted::Nothing, false, &[ended(1)]));
        assert!(!is_there(&Wanted::Rest(1), false, &[runs(1)]));
        assert!(is_there(&Wanted::Elsewhere, true, &[runs(1)]));
    }
}
