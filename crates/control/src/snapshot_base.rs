//! The image below a snapshot, which is the one that its sandbox ran on.

use crate::context::Context;
use crate::engine::Held;
use crate::error::{Error, Unfit};
use crate::machine::Machine;
use crate::snapshot_store::Base;
use types::ids::ResourceId;
use types::kinds::Snapshot;

/// Refuses to begin with a snapshot if `image` is not the name of the image below it, or if that
/// image, or the snapshot itself, is lost. It does not matter what the name means by now.
pub(crate) fn require_image(
    context: &Context,
    snapshot: &Held<Snapshot>,
    image: &str,
) -> Result<(), Error> {
    let below = snapshot.image().unwrap_or_default();
    let store = context.control.machine().and_then(|machine| machine.snapshots());
    let base = store.map(|store| store.base(&snapshot.row.id));
    if base == Some(Base::Gone) {
        return Err(Unfit::SnapshotLost.into());
    }
    if image != below || base == Some(Base::Lost) {
        return Err(Unfit::SnapshotImage { image: below.to_owned() }.into());
    }
    Ok(())
}

/// Checks whether a machine has kept the image below a launch's snapshot. Whoever may begin with a
/// snapshot may use its image: the workspace ran that image, and has kept it with the snapshot.
pub(crate) fn is_kept(machine: &dyn Machine, snapshot: Option<&ResourceId>) -> bool {
    let store = snapshot.and_then(|snapshot| Some((snapshot, machine.snapshots()?)));
    store.is_some_and(|(snapshot, store)| store.base(snapshot) == Base::Kept)
}

impl Held<Snapshot> {
    /// The name that the image below had when the snapshot was taken.
    pub(crate) fn image(&self) -> Option<&str> {
        let runtime = self.wish.origin.as_ref()?.spec.runtime.as_ref()?;
        runtime.image.as_deref()
    }
}
