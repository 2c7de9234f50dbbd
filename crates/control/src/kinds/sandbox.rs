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
use types::parts::{Lifecycle, Status};

impl Managed for Sandbox {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        let machine = held.state.placed.as_ref().map(|placed| placed.machine.as_str());
        let name = &held.row.name;
        Some(super::inference_url(context, Self::NAME, name, machine))
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
        context.require_region(draft.wish.spec.region.as_deref(), "spec.region")?;
        if let (Some(machine), Some(old)) = (context.control.machine(), draft.old)
            && old.image() != draft.wish.image()
        {
            images::usable(tx, &**machine, &context.member.workspace, draft.wish.image())?;
        }
        if let (Some(machine), Some(old)) = (context.control.machine(), draft.old)
            && draft.wish.restarts(old)
            && draft.state.placed.as_ref().is_none_or(|placed| placed.machine == machine.name())
        {
            // Otherwise it would end, and could not start again.
            let resize = launch::resize(draft.id, draft.wish, old)?;
            machine.require_room(&context.member.workspace, &resize)?;
        }
        if let Some(old) = draft.old
            && draft.state.is_away()
            && (draft.wish.restarts(old) || draft.wish.enabled() != old.enabled())
        {
            let status = draft.state.lifecycle.status().unwrap_or(Status::Archived).name();
            let wants = "unarchive it before you change what it runs with";
            return Err(Conflict::SandboxState { status, wants }.into());
        }
        if draft.old.is_none() {
            egress::require_gateway(context, tx, draft.wish)?;
            Holder::sandbox(draft.wish).take(context, tx, None)?;
        }
        Ok(())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        tunnels::release(tx, &held.row.id)?;
        Holder::sandbox(&held.wish).leave(context, tx)
    }
}
