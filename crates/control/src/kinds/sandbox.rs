//! Sandboxes, and the volumes that they hold.

use crate::attachments::Holder;
use crate::context::Context;
use crate::egress;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Conflict, Error};
use crate::query::ListQuery;
use crate::tunnels;
use crate::workloads::{images, launch};
use store::Tx;
use types::Kind;
use types::kinds::Sandbox;
use types::kinds::sandbox::State;
use types::parts::{Lifecycle, Status};

impl Managed for Sandbox {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        let (machine, name) = (Self::machine(&held.state), &held.row.name);
        Some(super::inference_url(context, Self::NAME, name, machine))
    }

    fn machine(state: &Self::State) -> Option<&str> {
        state.placed.as_ref().map(|placed| placed.machine.as_str())
    }

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(&mut state.lifecycle)
    }

    fn hidden(asked: &ListQuery) -> &'static [Status] {
        match asked.names_statuses() || asked.show_terminated.0 {
            true => &[],
            false => &[Status::Terminated],
        }
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        if let Some(old) = draft.old {
            require_instance(draft.wish, old, draft.state)?;
        }
        if let (Some(machine), Some(old)) = (context.control.machine(), draft.old)
            && old.image() != draft.wish.image()
        {
            images::usable(tx, &**machine, &context.member.workspace, draft.wish.image())?;
        }
        if let Some(machine) = context.control.machine()
            && starts_on(machine.name(), draft)
        {
            // Otherwise it would end, and could not start again.
            let resize = launch::resize(draft.id, draft.wish, draft.old)?;
            machine.require_room(&context.member.workspace, &resize)?;
        }
        if draft.old.is_none() {
            egress::require_gateway(context, tx, draft.wish)?;
            Holder::sandbox(draft.wish).take(context, tx, None, None)?;
        }
        Ok(())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        tunnels::release(tx, &held.row.id)?;
        Holder::sandbox(&held.wish).leave(context, tx)
    }
}

/// Whether a write has an instance started on this machine once its row is written.
fn starts_on(machine: &str, draft: &Draft<'_, Sandbox>) -> bool {
    let Some(old) = draft.old else {
        return draft.wish.enabled() && launch::waits_for_row(draft.wish);
    };
    let is_here = draft.state.placed.as_ref().is_none_or(|placed| placed.machine == machine);
    draft.wish.restarts(old) && is_here
}

/// Refuses a change that concerns the instance of a sandbox, if it has none: what runs for it must
/// not come back by the way.
fn require_instance(wish: &Sandbox, old: &Sandbox, state: &State) -> Result<(), Conflict> {
    let wants = match state.lifecycle.status() {
        Some(Status::Terminated) => "its files are gone; create it again",
        _ if state.is_away() => "unarchive it before you change what it runs with",
        _ => return Ok(()),
    };
    if !wish.restarts(old) && wish.enabled() == old.enabled() {
        return Ok(());
    }
    let status = state.lifecycle.status().unwrap_or(Status::Archived).name();
    Err(Conflict::SandboxState { status, wants })
}
