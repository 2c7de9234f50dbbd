//! Whether a job can be run: it is deployed if its image can be had here.

use super::followed::{Followed, Look, Reader};
use super::images::{self, Usable};
use super::workload::in_containers;
use super::{cron, rows};
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::machine::Machine;
use store::Tx;
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::Job;
use types::kinds::job::JobRuntime;
use types::parts::{Lifecycle, Status};

const DEPLOYMENT: &str = "deployment";

/// A job has no route. It is reconciled once, to learn whether it can run here; its cron triggers
/// come due.
impl Followed for Job {
    const ROUTED: bool = false;

    fn look(reader: &mut Reader<'_>, tx: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let differs = held.row.status == Some(Status::Deploying);
        let due = cron::due(reader.control, tx, &held)?;
        Ok(Look { due, differs, ..Look::default() })
    }

    /// Decides whether this machine can run a job that is new or was changed.
    async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let Some(machine) = control.machine().cloned() else { return Ok(()) };
        let (id, world) = (id.clone(), control.world.clone());
        let work = move |tx: &mut Tx<'_>| {
            let Some(held) = rows::lock::<Job>(tx, &id)? else { return Ok(()) };
            let mut state = held.state.clone();
            judge(tx, &*machine, &held.row.workspace, (&held.wish, &mut state), world.now())?;
            if state == held.state {
                return Ok(());
            }
            rows::put_state(tx, held, state).map(drop)
        };
        control.store.write(work).await
    }

    async fn act_when_due(control: &Control, id: &ResourceId) -> Result<(), Error> {
        cron::fire::<Self>(control, id).await
    }
}

/// Decides whether this machine can run a job that is being deployed. Writes to a job call this
/// too, so that their answer has the result.
pub(crate) fn judge(
    tx: &mut Tx<'_>,
    machine: &dyn Machine,
    workspace: &WorkspaceId,
    (wish, state): (&Job, &mut Lifecycle),
    now: Timestamp,
) -> Result<(), Error> {
    if state.status() != Some(Status::Deploying) {
        return Ok(());
    }
    let none = JobRuntime::default();
    let (status, message) =
        verdict(tx, machine, workspace, wish.spec.runtime.as_ref().unwrap_or(&none))?;
    state.record(DEPLOYMENT, status, message, now);
    Ok(())
}

fn verdict(
    tx: &mut Tx<'_>,
    machine: &dyn Machine,
    workspace: &WorkspaceId,
    runtime: &JobRuntime,
) -> Result<(Status, String), Error> {
    let Some(image) = runtime.image.as_deref().filter(|image| !image.is_empty()) else {
        return Ok((Status::Failed, "it has no image: set `spec.runtime.image`".to_owned()));
    };
    let place = match images::usable(tx, machine, workspace, image) {
        Ok(Usable::Now(_)) => "its tasks run in containers",
        Ok(Usable::Fetched) => "its tasks run in containers; the first of them fetches the image",
        Err(Error::InvalidImage(unknown)) => return Ok((Status::Failed, unknown.to_string())),
        Err(error) => return Err(error),
    };
    Ok((Status::Deployed, in_containers(place, runtime.generation)))
}
