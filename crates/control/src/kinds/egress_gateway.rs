//! Egress gateways.

use crate::context::Context;
use crate::egress;
use crate::engine::{Draft, Held, Managed, Paging};
use crate::error::Error;
use store::Tx;
use types::kinds::EgressGateway;

impl Managed for EgressGateway {
    const PAGING: Paging = Paging::Bare;

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        context.require_region(Some(&draft.wish.spec.region), "spec.region")?;
        egress::require_alone(context, tx, draft)
    }

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        egress::require_unused(context, tx, &held.row.name)
    }
}
