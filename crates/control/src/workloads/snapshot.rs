//! Snapshots as the background follows them: no row stays pending for ever, and snapshots that
//! nothing begins with any more are removed.

use super::followed::{Followed, Look, Reader};
use super::{rows, soon};
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::snapshot_store::{SnapshotFault, TakenSnapshot};
use crate::snapshots::{self, Unneeded};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use store::Tx;
use store::resources::{self, Stored};
use types::KindName;
use types::ids::ResourceId;
use types::kinds::Snapshot;
use types::kinds::snapshot::{Kept, SnapshotStatus, State};

/// Rows read at once.
const PAGE: i64 = 200;

impl Followed for Snapshot {
    const ROUTED: bool = false;
    const RUNS: bool = true;

    fn look(reader: &mut Reader<'_>, _: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let control = reader.control;
        let differs = is_here(control, &held.state)
            && !control.workloads.takes.has(&held.row.id)
            && (held.state.status == SnapshotStatus::Pending || held.state.kept == Kept::Deleted);
        Ok(Look { differs, ..Look::default() })
    }

    async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let Some((snapshots, _)) = control.snapshot_store() else { return Ok(()) };
        // Whoever takes the snapshot holds the lock until its row has the outcome.
        let _lock = control.workloads.lock(id).await;
        let of = id.clone();
        let held = control.store.read(move |tx| rows::find::<Self>(tx, &of)).await?;
        match held {
            None => snapshots.remove(id).await.map_err(|fault| Error::Snapshot(fault.to_string())),
            Some(held) if !is_here(control, &held.state) => Ok(()),
            Some(held) if held.state.status == SnapshotStatus::Pending => {
                let kept = snapshots.list().into_iter().find(|kept| kept.id == *id);
                let taken = kept.map(|kept| TakenSnapshot {
                    size_bytes: kept.size_bytes,
                    paused: Duration::ZERO,
                });
                let stopped = "the server was stopped while it was taken".to_owned();
                let how = taken.ok_or(SnapshotFault::Broken(stopped));
                snapshots::settle(control, id, how.as_ref()).await
            }
            Some(held) if held.state.kept == Kept::Deleted => let_go(control, id).await,
            Some(_) => Ok(()),
        }
    }
}

fn is_here(control: &Control, state: &State) -> bool {
    control.snapshot_store().is_some_and(|(_, machine)| state.machine.as_ref() == Some(&machine))
}

/// Removes the row of a deleted snapshot, unless something begins with it. The files are removed
/// after the row.
async fn let_go(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let Some(unneeded) = Unneeded::find(control, id).await? else { return Ok(()) };
    let (of, id) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some((context, held)) = rows::lock_in::<Snapshot>(&of, tx, &id)? else {
            return Ok(());
        };
        if held.state.kept != Kept::Deleted || !unneeded.still_holds(tx, &held.row)? {
            return Ok(());
        }
        engine::remove::<Snapshot>(&context, tx, &[], &held.row.name).map(drop)
    };
    control.store.write(work).await
}

/// Removes snapshots kept here whose rows are gone. `rows` are the existing ones.
pub(super) fn collect(control: &Control, rows: &HashSet<ResourceId>) {
    let Some((snapshots, _)) = control.snapshot_store() else { return };
    for kept in snapshots.list().into_iter().filter(|kept| !rows.contains(&kept.id)) {
        soon::reconcile(control, KindName::Snapshot, kept.id);
    }
}

/// Regularly looks for snapshots that nothing begins with any more, and updates the sizes of the
/// others.
pub(super) async fn run(control: Control) {
    if control.snapshot_store().is_none() {
        return;
    }
    loop {
        tokio::time::sleep(control.settings.snapshots.tidy_every).await;
        if let Err(error) = tidy(&control).await {
            tracing::error!(%error, "snapshots could not be looked after; it is tried again");
        }
    }
}

async fn tidy(control: &Control) -> Result<(), Error> {
    let Some((snapshots, _)) = control.snapshot_store() else { return Ok(()) };
    let kept = snapshots.list().into_iter().map(|kept| (kept.id, kept.size_bytes));
    let sizes: HashMap<ResourceId, u64> = kept.collect();
    let mut after: Option<ResourceId> = None;
    loop {
        let from = after.take();
        let page =
            move |tx: &mut Tx<'_>| resources::scan(tx, KindName::Snapshot, from.as_ref(), PAGE);
        let page = control.store.read(page).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        for row in page {
            let id = row.id.clone();
            match tidy_one(control, row, &sizes).await {
                Err(error) if !rows::may_pass(&error) => {
                    tracing::error!(%error, %id, "a snapshot could not be looked after; it is tried again");
                }
                tidied => tidied?,
            }
        }
    }
}

async fn tidy_one(
    control: &Control,
    row: Stored,
    sizes: &HashMap<ResourceId, u64>,
) -> Result<(), Error> {
    let held = Held::<Snapshot>::read(row)?;
    if is_here(control, &held.state) && held.state.status == SnapshotStatus::Ready {
        let size = sizes.get(&held.row.id).copied();
        look_after(control, held, size).await?;
    }
    Ok(())
}

async fn look_after(
    control: &Control,
    held: Held<Snapshot>,
    size: Option<u64>,
) -> Result<(), Error> {
    let old =
        held.row.created_at.plus(control.settings.snapshots.fork_within) < control.world.now();
    let goes = match held.state.kept {
        Kept::Needed if old => Unneeded::find(control, &held.row.id).await?,
        _ => None,
    };
    let grown = size.filter(|size| *size != held.state.size_bytes);
    match held.state.kept {
        Kept::Deleted => return let_go(control, &held.row.id).await,
        Kept::Needed | Kept::Asked if grown.is_none() && goes.is_none() => return Ok(()),
        Kept::Needed | Kept::Asked => {}
    }
    let (of, id) = (control.clone(), held.row.id);
    let work = move |tx: &mut Tx<'_>| {
        let Some((context, held)) = rows::lock_in::<Snapshot>(&of, tx, &id)? else {
            return Ok::<_, Error>(());
        };
        let mut state = held.state.clone();
        if let Some(size) = grown {
            state.size_bytes = size;
            snapshots::meter(&context, tx, &held, &mut state, size)?;
        }
        // The change makes the row be looked at, and a deleted snapshot that is not needed is
        // removed then.
        if let Some(unneeded) = goes
            && state.kept == Kept::Needed
            && unneeded.still_holds(tx, &held.row)?
        {
            state.kept = Kept::Deleted;
        }
        if state != held.state {
            rows::put_state(tx, held, state)?;
        }
        Ok(())
    };
    control.store.write(work).await
}
