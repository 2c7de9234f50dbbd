//! Jobs, and the addresses of their triggers.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Conflict, Error};
use crate::workloads;
use store::Tx;
use store::trigger_addresses::{self as addresses, Holder};
use types::kinds::Job;
use types::parts::Lifecycle;
use types::{Kind, KindName};

impl Managed for Job {
    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(state)
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        context.require_region(draft.wish.spec.region.as_deref(), "spec.region")?;
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
        give_back_addresses(context, tx, held)?;
        Ok(context.control.queue.cancel_job(tx, &held.row.workspace, &held.row.name)?)
    }
}

/// Takes the addresses of the triggers that a job has now, and gives back those that it had.
fn take_addresses(context: &Context, tx: &mut Tx<'_>, job: &Job) -> Result<(), Error> {
    let (workspace, name) = (&context.member.workspace, job.name());
    addresses::give_back(tx, workspace, KindName::Job, name)?;
    for trigger in job.spec.triggers.iter().flatten() {
        let Some(address) = trigger.address(KindName::Job, name) else { continue };
        let id = trigger.id.clone().unwrap_or_default();
        let holder = Holder { kind: KindName::Job, name: name.to_owned(), trigger: id };
        if !addresses::take(tx, workspace, &address, &holder)? {
            return Err(Conflict::TriggerAddress { address }.into());
        }
    }
    Ok(())
}

fn give_back_addresses(context: &Context, tx: &mut Tx<'_>, job: &Held<Job>) -> Result<(), Error> {
    Ok(addresses::give_back(tx, &context.member.workspace, KindName::Job, &job.row.name)?)
}
