//! Volumes.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed};
use crate::error::{Conflict, Error};
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
        if let (None, Some(template)) = (draft.wish.spec.size, draft.wish.spec.template.as_deref())
        {
            let name = template.split(':').next().unwrap_or_default();
            let template = Held::<VolumeTemplate>::get(context, tx, &[], name)?;
            draft.wish.spec.size = Some(template.wish.spec.default_size.unwrap_or(SIZE_MB_DEFAULT));
        }
        Ok(())
    }

    fn release(_: &Context, _: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        match &held.state.attached_to {
            Some(holder) => Err(Conflict::Attached { holder: holder.clone() }.into()),
            None => Ok(()),
        }
    }
}
