//! Volumes.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Conflict, Error};
use crate::{volume_templates, volumes};
use store::Tx;
use types::kinds::Volume;

/// Default size in megabytes, if neither the wish nor its template says.
const SIZE_MB_DEFAULT: i64 = 1024;

impl Managed for Volume {
    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        let size = size_mb(context, tx, draft.wish)?;
        draft.wish.spec.size = Some(size);
        // Where no machine is, the one that makes the file system later meters it.
        let is_kept = match draft.old {
            None => context.control.volume_store().is_some(),
            Some(_) => draft.state.machine.is_some() || draft.state.metered > 0,
        };
        if is_kept && draft.old.is_none_or(|old| old.spec.size != Some(size)) {
            let of = (draft.wish.metadata.name.as_str(), draft.id);
            volumes::meter(context, tx, of, draft.state, Some(size))?;
        }
        Ok(())
    }

    fn require_unused(_: &Context, _: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        match &held.state.attached_to {
            Some(holder) => Err(Conflict::Attached { holder: holder.clone() }.into()),
            None => Ok(()),
        }
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        if held.state.metered > 0 {
            let mut state = held.state.clone();
            volumes::meter(context, tx, (&held.row.name, &held.row.id), &mut state, None)?;
        }
        Ok(())
    }
}

/// Returns the size in megabytes that a wish asks for, or else its template's default, but at least
/// what the template's content needs.
pub(crate) fn size_mb(context: &Context, tx: &mut Tx<'_>, wish: &Volume) -> Result<i64, Error> {
    if let Some(size) = wish.spec.size {
        return Ok(size);
    }
    let Some((template, _)) = volume_templates::named(context, tx, wish)? else {
        return Ok(SIZE_MB_DEFAULT);
    };
    let size = template.wish.spec.default_size.unwrap_or(SIZE_MB_DEFAULT);
    if context.control.volume_store().is_none() {
        return Ok(size);
    }
    let origin = volume_templates::origin(context, tx, wish)?;
    Ok(origin.map_or(size, |origin| size.max(origin.size_mb.into())))
}
