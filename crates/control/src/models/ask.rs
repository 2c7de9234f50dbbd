//! The models that a connection reaches, as its provider lists them.

use super::{access, route};
use crate::context::Context;
use crate::engine::Held;
use crate::error::{Absent, Error, ProviderFault};
use ::models::listing::{ListedModel, read_models};
use ::models::provider::list_models;
use std::sync::Arc;
use store::Tx;
use types::kinds::IntegrationConnection;
use types::models::ModelProvider;

/// Returns the models that a connection reaches.
pub async fn list(context: &Context, connection: &str) -> Result<Arc<Vec<ListedModel>>, Error> {
    let control = &context.control;
    let workspace = &context.member.workspace;
    access::first(control, workspace, connection).await?;
    let (of, name) = (context.clone(), connection.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<IntegrationConnection>::get(&of, tx, &[], &name)?;
        let provider = route::bare_provider(&of, &held)?;
        Ok::<_, Error>(((held.row.id, held.row.version), provider))
    };
    let (key, provider) = control.store.read(work).await?;
    let asked = &control.models.listed;
    if let Some(kept) = asked.kept(&key, control.world.now()) {
        return Ok(kept);
    }
    let unfit = |why| ProviderFault::Connection { name: connection.to_owned(), why };
    let provider = provider.map_err(unfit)?;
    let _turn = asked.asking.take(workspace, 1)?;
    let models = Arc::new(ask(context, connection, &provider).await?);
    asked.keep(key, &models, control.world.now());
    Ok(models)
}

/// Returns one of the models, by the provider's name for it.
pub async fn one(context: &Context, connection: &str, id: &str) -> Result<ListedModel, Error> {
    let models = list(context, connection).await?;
    let found = models.iter().find(|model| model.id == id);
    found.cloned().ok_or_else(|| Absent::ProviderModel.into())
}

async fn ask(
    context: &Context,
    connection: &str,
    provider: &ModelProvider,
) -> Result<Vec<ListedModel>, ProviderFault> {
    let name = connection.to_owned();
    let request = match list_models(provider) {
        Ok(request) => request,
        Err(bad) => return Err(ProviderFault::Connection { name, why: format!(": {bad}") }),
    };
    let Some(edge) = &context.control.edge else {
        let why = "this server asks no providers".to_owned();
        return Err(ProviderFault::Unreachable { name, why });
    };
    let answer = edge.ask_outside(&context.member.workspace, &request).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(fault) => return Err(ProviderFault::Unreachable { name, why: fault.to_string() }),
    };
    match answer.status {
        200..=299 => read_models(provider.kind, &answer.body.0)
            .map_err(|unreadable| ProviderFault::Unreadable { name, why: unreadable.to_string() }),
        status @ (401 | 403) => Err(ProviderFault::Credentials { name, status }),
        status => Err(ProviderFault::Failed { name, status }),
    }
}
