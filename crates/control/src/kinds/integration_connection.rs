//! Connections to providers.

use crate::context::Context;
use crate::engine::{self, Draft, Held, Managed, Paging, ShowsSecrets};
use crate::error::{Conflict, Error};
use crate::models::route;
use crate::providers;
use store::{Tx, references};
use types::kinds::{Function, IntegrationConnection};
use types::{Kind, KindName, Problems};

impl Managed for IntegrationConnection {
    const PAGING: Paging = Paging::Bare;
    /// Credentials are here to be used. Whoever has lost them gets them from the provider.
    const SHOWS_SECRETS: ShowsSecrets = ShowsSecrets::Never;

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        require_known(context, draft.wish.spec.integration.as_deref().unwrap_or_default())?;
        let (new, old) = (&draft.wish.spec, draft.old.map(|old| &old.spec));
        match old.is_some_and(|old| (&old.config, &old.secret) != (&new.config, &new.secret)) {
            true => deploy_users(context, tx, draft.wish.name()),
            false => Ok(()),
        }
    }

    fn require_unused(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        let used =
            |kind, name: &str| Err(Conflict::ConnectionUsed { kind, name: name.to_owned() }.into());
        if let Some((kind, name)) = users(context, tx, &held.row.name)?.first() {
            return used(*kind, name);
        }
        // The serving revision of a model may be older, and name other connections.
        match route::users(context, tx, (Self::NAME, &held.row.name))?.first() {
            Some(model) => used(KindName::Model, &model.row.name),
            None => Ok(()),
        }
    }
}

fn users(context: &Context, tx: &mut Tx<'_>, name: &str) -> Result<Vec<(KindName, String)>, Error> {
    let kind = KindName::IntegrationConnection;
    Ok(references::users(tx, &context.member.workspace, kind, name)?)
}

/// Checks that a connection is to a known provider, or for a hub server.
fn require_known(context: &Context, integration: &str) -> Result<(), Error> {
    let of_hub = || context.control.settings.catalogue.integrations();
    if providers::is_known(integration) || of_hub().any(|known| known == integration) {
        return Ok(());
    }
    let mut names = providers::names();
    names.extend(of_hub());
    names.sort_unstable();
    names.dedup();
    let rule = format!("must be one of {}", names.join(", "));
    Err(Problems::one("spec.integration", rule).into())
}

/// Deploys anew the functions whose hub server was given something else until now, so that new
/// replicas replace the running ones.
fn deploy_users(context: &Context, tx: &mut Tx<'_>, connection: &str) -> Result<(), Error> {
    for (kind, name) in users(context, tx, connection)? {
        if kind == KindName::Function {
            let concerns = |function: &Function| {
                let named = function.hub_connections().and_then(<[String]>::first);
                named.is_some_and(|named| named == connection)
            };
            engine::redeploy(context, tx, &name, concerns)?;
        }
    }
    Ok(())
}
