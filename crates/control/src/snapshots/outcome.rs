//! Writes what became of a snapshot into its row and into the events of its sandbox.

use super::meter;
use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held};
use crate::error::Error;
use crate::snapshot_store::{SnapshotFault, TakenSnapshot};
use crate::workloads::rows;
use std::time::Duration;
use store::Tx;
use types::ids::ResourceId;
use types::kinds::snapshot::{Kept, SnapshotStatus};
use types::kinds::{Sandbox, Snapshot};

/// The type of events about a sandbox's snapshots.
const SNAPSHOT: &str = "snapshot";

enum Attempt {
    Taken {
        size_bytes: u64,
        paused: Duration,
    },
    /// There is no room for it, or its files allow none.
    Refused(String),
    Failed(String),
}

impl Attempt {
    fn of(how: Result<&TakenSnapshot, &SnapshotFault>) -> Self {
        match how {
            Ok(&TakenSnapshot { size_bytes, paused }) => Self::Taken { size_bytes, paused },
            Err(
                fault @ (SnapshotFault::OverShare(_)
                | SnapshotFault::Full(_)
                | SnapshotFault::Unfit(_)),
            ) => Self::Refused(fault.to_string()),
            Err(fault) => Self::Failed(fault.to_string()),
        }
    }

    /// Returns the text of the event.
    fn text(&self, name: Option<&str>) -> String {
        let named = name.map(|name| format!(" `{name}`")).unwrap_or_default();
        match self {
            Self::Taken { paused, .. } => format!(
                "the snapshot{named} has its files, not its memory and processes, which a container cannot give; it stood still for {} ms",
                paused.as_millis()
            ),
            Self::Refused(why) | Self::Failed(why) => {
                format!("the snapshot{named} could not be taken: {why}")
            }
        }
    }
}

/// Writes the outcome of a snapshot into its row. A refused snapshot leaves no row.
pub(crate) async fn settle(
    control: &Control,
    id: &ResourceId,
    how: Result<&TakenSnapshot, &SnapshotFault>,
) -> Result<(), Error> {
    let attempt = Attempt::of(how);
    let (of, row) = (control.clone(), id.clone());
    let has_row = control.store.write(move |tx| write(&of, tx, &row, &attempt)).await?;
    if !has_row && let Some((snapshots, _)) = control.snapshot_store() {
        // Its workspace was deleted meanwhile, with everything in it.
        snapshots.remove(id).await.map_err(|fault| Error::Snapshot(fault.to_string()))?;
    }
    Ok(())
}

/// Returns false if the snapshot has no row any more.
fn write(
    control: &Control,
    tx: &mut Tx<'_>,
    id: &ResourceId,
    attempt: &Attempt,
) -> Result<bool, Error> {
    let Some((context, held)) = rows::find_in::<Snapshot>(control, tx, id)? else {
        return Ok(false);
    };
    // Sandbox and snapshot are always locked in this order.
    let sandbox = match &held.wish.origin {
        Some(origin) => rows::lock::<Sandbox>(tx, &origin.id)?,
        None => None,
    };
    let Some(held) = rows::lock::<Snapshot>(tx, id)? else { return Ok(false) };
    if held.state.status != SnapshotStatus::Pending {
        return Ok(true);
    }
    let text = attempt.text(held.wish.name.as_deref());
    match attempt {
        Attempt::Taken { size_bytes, .. } => ready(&context, tx, held, *size_bytes)?,
        Attempt::Failed(why) if held.state.kept == Kept::Asked => failed(tx, held, why)?,
        Attempt::Failed(_) | Attempt::Refused(_) => {
            engine::remove::<Snapshot>(&context, tx, &[], &held.row.name)?;
        }
    }
    if let Some(sandbox) = sandbox {
        note(&context, tx, sandbox, text)?;
    }
    Ok(true)
}

fn ready(
    context: &Context,
    tx: &mut Tx<'_>,
    held: Held<Snapshot>,
    size_bytes: u64,
) -> Result<(), Error> {
    let mut state = held.state.clone();
    state.status = SnapshotStatus::Ready;
    state.size_bytes = size_bytes;
    meter(context, tx, &held, &mut state, size_bytes)?;
    rows::put_state(tx, held, state).map(drop)
}

fn failed(tx: &mut Tx<'_>, held: Held<Snapshot>, why: &str) -> Result<(), Error> {
    let mut state = held.state.clone();
    (state.status, state.message) = (SnapshotStatus::Failed, Some(why.to_owned()));
    rows::put_state(tx, held, state).map(drop)
}

/// Adds the outcome of a snapshot to the events of a sandbox, whatever its status.
fn note(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: Held<Sandbox>,
    text: String,
) -> Result<(), Error> {
    let mut state = sandbox.state.clone();
    let Some(status) = state.lifecycle.status() else { return Ok(()) };
    state.lifecycle.record(SNAPSHOT, status, text, context.world().now());
    rows::put_state(tx, sandbox, state).map(drop)
}
