//! Jobs, and the addresses of their triggers.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::Error;
use crate::executions::triggered::take_addresses;
use crate::workloads;
use store::Tx;
use types::kinds::Job;
use types::parts::Lifecycle;

impl Managed for Job {
    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(state)
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        super::require_place(context, tx, draft.wish, None)?;
        if let Some(machine) = context.control.machine() {
            let (job, workspace) = ((&*draft.wish, &mut *draft.state), &context.member.workspace);
            workloads::jobs::judge(tx, &**machine, workspace, job, context.world().now())?;
        }
        Ok(())
    }

    fn follow(context: &Context, tx: &mut Tx<'_>, wish: &Self) -> Result<(), Error> {
        take_addresses(context, tx, wish)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        super::release_triggered(context, tx, held)
    }
}
