//! Volumes.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Conflict, Error};
use crate::volumes;
use store::Tx;
use types::kinds::{Volume, VolumeTemplate};

/// Megabytes of a volume whose template does not say.
const SIZE_MB_DEFAULT: i64 = 1024;

impl Managed for Volume {
    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        context.require_region(draft.wish.spec.region.as_deref(), "spec.region")?;
        let size = size_mb(context, tx, draft.wish)?;
        draft.wish.spec.size = Some(size);
        let grows = draft.old.is_none_or(|old| old.spec.size != Some(size));
        if grows && volumes::keeper(&context.control).is_some() {
            let of = (draft.wish.metadata.name.as_str(), draft.id);
            volumes::meter(context, tx, of, draft.state, Some(size))?;
        }
        Ok(())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        if let Some(holder) = &held.state.attached_to {
            return Err(Conflict::Attached { holder: holder.clone() }.into());
        }
        if held.state.metered > 0 {
            let mut state = held.state.clone();
            volumes::meter(context, tx, (&held.row.name, &held.row.id), &mut state, None)?;
        }
        Ok(())
    }
}

/// Megabytes that a wish asks for: what it says, or else its template.
pub(crate) fn size_mb(context: &Context, tx: &mut Tx<'_>, wish: &Volume) -> Result<i64, Error> {
    match (wish.spec.size, wish.spec.template.as_deref()) {
        (Some(size), _) => Ok(size),
        (None, None) => Ok(SIZE_MB_DEFAULT),
        (None, Some(template)) => {
            let name = template.split(':').next().unwrap_or_default();
            let template = Held::<VolumeTemplate>::get(context, tx, &[], name)?;
            Ok(template.wish.spec.default_size.unwrap_or(SIZE_MB_DEFAULT))
        }
    }
}
