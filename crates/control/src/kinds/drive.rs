//! Drives.

use crate::context::Context;
use crate::drives;
use crate::engine::{Held, Managed};
use crate::error::Error;
use store::Tx;
use types::kinds::Drive;

impl Managed for Drive {
    fn adorn(&mut self, context: &Context, _: &mut Tx<'_>) -> Result<(), Error> {
        let url = crate::drive_buckets::url_of(context, &self.metadata.name);
        self.state.get_or_insert_default().s3_url = Some(url);
        Ok(())
    }

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        drives::require_unused(context, tx, held)
    }
}
