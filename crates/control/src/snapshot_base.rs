//! What lies below a snapshot: the image that its sandbox ran on.

use crate::context::Context;
use crate::engine::Held;
use crate::error::{Conflict, Error};
use crate::workloads::images::{self, Usable};
use store::Tx;
use types::kinds::Snapshot;

/// Refuses to begin with a snapshot over anything but the image that lies below it. A name does not
/// tell: a tag may have moved since.
pub(crate) fn require_image(
    context: &Context,
    tx: &mut Tx<'_>,
    snapshot: &Held<Snapshot>,
    image: &str,
) -> Result<(), Error> {
    let below = snapshot.image().unwrap_or_default();
    let other = || Err(Conflict::SnapshotImage { image: below.to_owned() }.into());
    if image != below {
        return other();
    }
    let Some(machine) = context.control.machine() else { return Ok(()) };
    let Some(store) = machine.snapshots() else { return Ok(()) };
    match images::usable(tx, &**machine, &context.member.workspace, image)? {
        Usable::Now(granted) if !store.lies_over(&snapshot.row.id, image, granted.as_deref()) => {
            other()
        }
        // What has to be fetched first is compared by the machine, when it is there.
        Usable::Now(_) | Usable::Fetched => Ok(()),
    }
}

impl Held<Snapshot> {
    /// What the image below it was called.
    pub(crate) fn image(&self) -> Option<&str> {
        let runtime = self.wish.origin.as_ref()?.spec.runtime.as_ref()?;
        runtime.image.as_deref()
    }
}
