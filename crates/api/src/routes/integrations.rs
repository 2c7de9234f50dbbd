//! Providers, and what a connection to one reaches.

use crate::call::Call;
use crate::engine::Held;
use crate::error::Error;
use crate::missing::Missing;
use crate::providers;
use crate::reply::Reply;
use auth::Member;
use serde_json::Value;
use std::collections::BTreeMap;
use types::kinds::IntegrationConnection;
use types::wire::{Integration, IntegrationEndpoint};

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<Integration>, Error> {
    let found = providers::find(call.path.name());
    found
        .map(|provider| Reply::of(&provider))
        .ok_or_else(|| Error::NotFound("no integration of this name is known".into()))
}

async fn connection<Q, B>(call: &Call<Member, Q, B>) -> Result<Held<IntegrationConnection>, Error> {
    let (desk, name) = (call.desk(), call.path.at(0).to_owned());
    call.app.store.read(move |tx| Held::<IntegrationConnection>::get(&desk, tx, &[], &name)).await
}

/// The endpoints that the provider of a connection serves, by path.
pub(crate) async fn endpoints(
    call: Call<Member>,
) -> Result<Reply<BTreeMap<String, IntegrationEndpoint>>, Error> {
    let integration = connection(&call).await?.wish.spec.integration.unwrap_or_default();
    let provider = providers::find(&integration);
    Ok(Reply::of(&provider.and_then(|provider| provider.endpoints).unwrap_or_default()))
}

pub(crate) async fn models(call: Call<Member>) -> Result<Reply<Vec<Value>>, Error> {
    connection(&call).await?;
    Err(Error::Missing(Missing::AskProvider))
}

pub(crate) async fn model(call: Call<Member>) -> Result<Reply<Value>, Error> {
    connection(&call).await?;
    Err(Error::Missing(Missing::AskProvider))
}
