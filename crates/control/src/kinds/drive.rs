//! Drives.

use crate::context::Context;
use crate::engine::{Held, Managed};
use crate::error::Error;
use crate::{drive_buckets, drives};
use store::Tx;
use types::kinds::Drive;

impl Managed for Drive {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        let machine = held.state.machine.as_deref();
        Some(drive_buckets::url_of(context, &held.row.name, machine))
    }

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        drives::require_unused(context, tx, held)
    }
}
