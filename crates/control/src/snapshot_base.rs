//! What lies below a snapshot: the image that its sandbox ran on.

use crate::context::Context;
use crate::engine::Held;
use crate::error::{Conflict, Error};
use crate::machine::Machine;
use crate::snapshot_store::Base;
use types::ids::ResourceId;
use types::kinds::Snapshot;

/// Refuses to begin with a snapshot under the name of another image than the one that lies below it,
/// or when that one is lost. What the name means by now is all the same.
pub(crate) fn require_image(
    context: &Context,
    snapshot: &Held<Snapshot>,
    image: &str,
) -> Result<(), Error> {
    let below = snapshot.image().unwrap_or_default();
    let store = context.control.machine().and_then(|machine| machine.snapshots());
    let is_lost = store.is_some_and(|store| store.base(&snapshot.row.id) == Base::Lost);
    if image != below || is_lost {
        return Err(Conflict::SnapshotImage { image: below.to_owned() }.into());
    }
    Ok(())
}

/// Whether a machine has the image that a launch begins over. Whoever may begin with a snapshot may do
/// so over what lies below it: the workspace ran that, and has kept it.
pub(crate) fn is_kept(machine: &dyn Machine, snapshot: Option<&ResourceId>) -> bool {
    let store = snapshot.and_then(|snapshot| Some((snapshot, machine.snapshots()?)));
    store.is_some_and(|(snapshot, store)| store.base(snapshot) == Base::Kept)
}

impl Held<Snapshot> {
    /// What the image below it was called.
    pub(crate) fn image(&self) -> Option<&str> {
        let runtime = self.wish.origin.as_ref()?.spec.runtime.as_ref()?;
        runtime.image.as_deref()
    }
}
