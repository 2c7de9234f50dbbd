//! Providers, and what can be reached through a connection to one.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::reply::Reply;
use auth::Member;
use control::engine::Held;
use control::error::Absent;
use control::{json, models, providers};
use serde_json::Value;
use std::collections::BTreeMap;
use store::Tx;
use types::kinds::IntegrationConnection;
use types::wire::{Integration, IntegrationEndpoint};

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<Integration>, Error> {
    let name = call.path.name();
    let of_hub = || call.app.settings.catalogue.integration(name);
    let found = providers::find(name).or_else(of_hub);
    found.map(|provider| Reply::of(&provider)).ok_or_else(|| Absent::Integration.into())
}

async fn connection<Q, B>(call: &Call<Member, Q, B>) -> Result<Held<IntegrationConnection>, Error> {
    let (context, name) = (call.context(), call.path.at(0).to_owned());
    let work = move |tx: &mut Tx<'_>| Held::<IntegrationConnection>::get(&context, tx, &[], &name);
    Ok(call.app.store.read(work).await?)
}

/// Lists the endpoints that the provider of a connection serves, by path.
pub(crate) async fn endpoints(
    call: Call<Member>,
) -> Result<Reply<BTreeMap<String, IntegrationEndpoint>>, Error> {
    let integration = connection(&call).await?.wish.spec.integration.unwrap_or_default();
    let provider = providers::find(&integration);
    Ok(Reply::of(&provider.and_then(|provider| provider.endpoints).unwrap_or_default()))
}

/// Lists the models that the provider of a connection offers.
pub(crate) async fn models(call: Call<Member>) -> Result<Reply<Vec<Value>>, Error> {
    let listed = models::list(&call.context(), call.path.at(0)).await?;
    Ok(Reply::of(&listed.iter().map(json::value).collect::<Vec<_>>()))
}

pub(crate) async fn model(call: Call<Member>) -> Result<Reply<Value>, Error> {
    let found = models::one(&call.context(), call.path.at(0), call.path.at(1)).await?;
    Ok(Reply::of(&json::value(&found)))
}
