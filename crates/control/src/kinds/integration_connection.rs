//! Connections to providers.

use crate::context::Context;
use crate::engine::{Draft, Held, Managed, Paging};
use crate::error::{Conflict, Error};
use crate::providers;
use store::{Tx, references};
use types::kinds::IntegrationConnection;
use types::{KindName, Problems};

impl Managed for IntegrationConnection {
    const PAGING: Paging = Paging::Bare;

    fn prepare(_: &Context, _: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        if providers::is_known(draft.wish.spec.integration.as_deref().unwrap_or_default()) {
            return Ok(());
        }
        let mut problems = Problems::default();
        problems
            .add("spec.integration", format!("must be one of {}", providers::names().join(", ")));
        Err(problems.into())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        let users = references::users(
            tx,
            &context.member.workspace,
            KindName::IntegrationConnection,
            &held.row.name,
        )?;
        match users.first() {
            Some((kind, name)) => {
                Err(Conflict::ConnectionUsed { kind: *kind, name: name.clone() }.into())
            }
            None => Ok(()),
        }
    }
}
