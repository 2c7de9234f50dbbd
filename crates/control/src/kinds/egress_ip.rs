//! Egress addresses.

use crate::context::Context;
use crate::egress;
use crate::engine::{Draft, Held, Managed, Paging};
use crate::error::Error;
use store::Tx;
use types::kinds::EgressIp;

impl Managed for EgressIp {
    const PAGING: Paging = Paging::Bare;

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        egress::take(context, tx, draft)?;
        egress::addresses_changed(context, tx, draft)
    }

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        egress::require_address_unused(context, tx, held)
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        egress::give_back(context, tx, held)
    }
}
