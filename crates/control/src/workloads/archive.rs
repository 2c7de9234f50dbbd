//! Archiving a sandbox whose row asks for it, in the background.

use super::rows;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::snapshots::{self, Order};
use store::Tx;
use types::ids::ResourceId;
use types::kinds::sandbox::SandboxArchive;
use types::kinds::snapshot::Kept;
use types::kinds::{Sandbox, Snapshot};
use types::parts::Status;

/// The type of events about a sandbox's archive.
pub(crate) const ARCHIVE: &str = "archive";

/// Checks whether the files of a sandbox are being archived already.
pub(super) fn has_begun(control: &Control, id: &ResourceId) -> bool {
    control.workloads.archiving.has(id)
}

/// Archives the files of a sandbox in the background. Nobody must reach the sandbox any more, and
/// it must be asleep, so that nothing is written that the archive lacks.
pub(super) fn begin(control: &Control, id: &ResourceId) {
    let (control, id) = (control.clone(), id.clone());
    let tasks = control.workloads.tasks.clone();
    tasks.spawn(async move {
        let _archiving = control.workloads.archiving.begin(&id);
        carry_out(&control, &id).await;
    });
}

/// Carries out what a row that is `ARCHIVING` asks for. A sandbox that cannot be archived becomes
/// `DEPLOYED` again.
async fn carry_out(control: &Control, id: &ResourceId) {
    while let Err(error) = attempt(control, id).await {
        tracing::error!(%error, sandbox = %id, "it could not be archived yet; it is tried again");
        tokio::time::sleep(rows::RETRY_AFTER).await;
    }
}

async fn attempt(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, row) = (control.clone(), id.clone());
    let read = move |tx: &mut Tx<'_>| rows::find_in::<Sandbox>(&of, tx, &row);
    let Some((context, held)) = control.store.read(read).await? else { return Ok(()) };
    if held.row.status != Some(Status::Archiving) {
        return Ok(());
    }
    let order = Order { sandbox: held.row.name.clone(), name: None, kept: Kept::Needed };
    let taken = match snapshots::take(&context, order).await {
        Ok(snapshot) => put_away(control, &context, snapshot).await,
        Err(Error::Store(error)) => return Err(error.into()),
        Err(other) => Err(NotArchived { why: other.to_string(), taken: None }),
    };
    let id = id.clone();
    control.store.write(move |tx| archived(&context, tx, &id, &taken)).await
}

/// Why a sandbox could not be archived, and the snapshot that was taken for it, if any.
struct NotArchived {
    why: String,
    taken: Option<ResourceId>,
}

/// Moves the files of an archive to where the machine keeps archives, before the sandbox is gone.
async fn put_away(
    control: &Control,
    context: &Context,
    snapshot: ResourceId,
) -> Result<ResourceId, NotArchived> {
    let Some((snapshots, _)) = control.snapshot_store() else { return Ok(snapshot) };
    match snapshots.offload(context.member.workspace.as_str(), &snapshot).await {
        Ok(()) => Ok(snapshot),
        Err(fault) => Err(NotArchived { why: fault.to_string(), taken: Some(snapshot) }),
    }
}

fn archived(
    context: &Context,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    taken: &Result<ResourceId, NotArchived>,
) -> Result<(), Error> {
    let Some(held) = rows::lock::<Sandbox>(tx, id)? else { return Ok(()) };
    if held.row.status != Some(Status::Archiving) {
        return Ok(());
    }
    let (now, mut state) = (context.world().now(), held.state.clone());
    match taken {
        Ok(snapshot) => {
            let kept = Held::<Snapshot>::get(context, tx, &[], &Snapshot::id_of(snapshot))?;
            let begun = state.archive.take().unwrap_or_default();
            state.archive = Some(SandboxArchive {
                created_at: Some(now),
                size: Some(kept.state.size_bytes),
                ..begun
            });
            state.snapshot = Some(snapshot.clone());
            state.fresh_disk = false;
            state.activity = None;
            let message = "its files are kept; its memory and processes are gone";
            state.lifecycle.record(ARCHIVE, Status::Archived, message, now);
        }
        Err(NotArchived { why, taken }) => {
            if let Some(snapshot) = taken {
                let_go(context, tx, snapshot)?;
            }
            state.archive = None;
            let message = format!("it could not be archived: {why}");
            state.lifecycle.record(ARCHIVE, Status::Deployed, message, now);
        }
    }
    rows::put_state(tx, held, state).map(drop)
}

/// Hides a snapshot that did not become an archive. It is removed when the rows are next followed.
fn let_go(context: &Context, tx: &mut Tx<'_>, snapshot: &ResourceId) -> Result<(), Error> {
    let held = Held::<Snapshot>::find(context, tx, &[], &Snapshot::id_of(snapshot))?;
    let Some(held) = held else { return Ok(()) };
    let state = types::kinds::snapshot::State { kept: Kept::Deleted, ..held.state.clone() };
    rows::put_state(tx, held, state).map(drop)
}
