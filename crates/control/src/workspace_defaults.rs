//! What every workspace has from its first moment.

use crate::context::Context;
use crate::engine;
use crate::error::Error;
use store::Tx;
use types::kinds::vpc::{Vpc, VpcSpec};

/// The VPC that every workspace has and cannot delete.
pub(crate) const DEFAULT_VPC: &str = "default";

/// Creates what every workspace has, where it is missing.
pub fn create_missing(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    if context.find(tx, types::KindName::Vpc, &[], DEFAULT_VPC)?.is_none() {
        let metadata = types::parts::Metadata { name: DEFAULT_VPC.into(), ..Default::default() };
        let vpc = Vpc { metadata, spec: VpcSpec::default(), events: None, status: None };
        // Another server may be starting, too.
        engine::create(context, tx, &[], vpc).inspect_err(|error| note_rival(tx, error))?;
    }
    Ok(())
}

/// Has a transaction repeated that did not find an object, and then found that it exists.
pub(crate) fn note_rival(tx: &mut Tx<'_>, error: &Error) {
    if matches!(error, Error::Exists { .. }) {
        tx.note_duplicate();
    }
}
