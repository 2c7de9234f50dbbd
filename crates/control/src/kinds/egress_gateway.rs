//! Egress gateways.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed, Paging};
use crate::error::{Conflict, Error};
use store::{Tx, references};
use types::KindName;
use types::kinds::EgressGateway;

impl Managed for EgressGateway {
    const PAGING: Paging = Paging::Bare;

    fn prepare(
        context: &Context,
        _: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        context.require_region(Some(&draft.wish.spec.region), "spec.region")
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        let users = references::users(
            tx,
            &context.member.workspace,
            KindName::EgressGateway,
            &held.row.name,
        )?;
        match users.first() {
            Some((_, name)) => Err(Conflict::GatewayUsed { sandbox: name.clone() }.into()),
            None => Ok(()),
        }
    }
}
