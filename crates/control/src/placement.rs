//! The machine on which something has to run. What a machine keeps is on no other machine, so of
//! several servers only the one on that machine may run what begins with it or mounts it.

use crate::attachments::Holder;
use crate::context::Context;
use crate::engine::Held;
use crate::error::Error;
use store::Tx;
use types::ids::ResourceId;
use types::kinds::{Snapshot, Volume};

/// Returns the machine that keeps the snapshot with which something begins, or else the volumes
/// that it mounts. `None` means that every machine may run it, or that none of these says where it
/// is kept.
pub(crate) fn required(
    context: &Context,
    tx: &mut Tx<'_>,
    snapshot: Option<&ResourceId>,
    holder: Option<&Holder<'_>>,
) -> Result<Option<String>, Error> {
    if let Some(snapshot) = snapshot
        && let Some(held) = Held::<Snapshot>::find(context, tx, &[], &Snapshot::id_of(snapshot))?
        && held.state.machine.is_some()
    {
        return Ok(held.state.machine);
    }
    for wished in holder.into_iter().flat_map(Holder::persistent) {
        let name = wished.name.as_deref().unwrap_or_default();
        if let Some(held) = Held::<Volume>::find(context, tx, &[], name)?
            && held.state.machine.is_some()
        {
            return Ok(held.state.machine);
        }
    }
    Ok(None)
}
