//! API keys of people and of service accounts.

use crate::http::call::{Body, Call, Person};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::api_keys::{self, NewKey};
use auth::{Member, Subject};
use store::Tx;
use types::ids::{ApiKeyId, ServiceAccountId};
use types::parts::Sensitive;
use types::wire::{ApiKey, ApiKeyRequest, Message};

fn shown(stored: api_keys::ApiKey, value: Option<String>) -> ApiKey {
    let sub_type = match &stored.subject {
        Subject::User(_) => "user",
        Subject::ServiceAccount(_) => "service_account",
    };
    let (models, budget) = stored.models.map(|key| (key.models, key.budget)).unzip();
    ApiKey {
        api_key: value.map(Sensitive),
        created_at: Some(stored.created_at),
        updated_at: Some(stored.created_at),
        created_by: Some(stored.created_by.clone()),
        updated_by: Some(stored.created_by),
        expires_in: stored.expires_in,
        id: Some(stored.id.to_string()),
        name: Some(stored.name),
        models,
        budget: budget.flatten(),
        sub: Some(stored.subject.as_str().to_owned()),
        sub_type: Some(sub_type.into()),
    }
}

fn all_shown(keys: Vec<api_keys::ApiKey>) -> Reply<Vec<ApiKey>> {
    Reply::of(&keys.into_iter().map(|key| shown(key, None)).collect::<Vec<_>>())
}

fn new_key(asked: &ApiKeyRequest) -> Result<NewKey, Error> {
    asked.expires_in_s()?;
    Ok(NewKey {
        name: asked.name.clone().unwrap_or_default(),
        expires_in: asked.expires_in.clone(),
        models: asked.key_models()?,
    })
}

fn revoked() -> Reply<Message> {
    Reply::of(&Message { message: "the key opens nothing any more".into() })
}

pub(crate) async fn list_own(call: Call<Person>) -> Result<Reply<Vec<ApiKey>>, Error> {
    let who = call.who.0.clone();
    Ok(all_shown(call.app.store.read(move |tx| api_keys::list(tx, &who)).await?))
}

pub(crate) async fn create_own(
    call: Call<Person, NoQuery, Body<ApiKeyRequest>>,
) -> Result<Reply<ApiKey>, Error> {
    let (who, new) = (call.who.0.clone(), new_key(&call.body.0)?);
    call.once(move |tx| {
        let (key, value) = api_keys::create(tx, &who, new.clone())?;
        Ok::<_, Error>(shown(key, Some(value)))
    })
    .await
}

pub(crate) async fn revoke_own(call: Call<Person>) -> Result<Reply<Message>, Error> {
    let (who, id) = (call.who.0.clone(), ApiKeyId::known(call.path.name()));
    call.app.auth.change(move |tx| api_keys::delete(tx, &who, &id)).await?;
    Ok(revoked())
}

pub(crate) async fn list_of_service_account(
    call: Call<Member>,
) -> Result<Reply<Vec<ApiKey>>, Error> {
    let (member, id) = (call.who.clone(), ServiceAccountId::known(call.path.at(0)));
    Ok(all_shown(
        call.app.store.read(move |tx| api_keys::list_of_service_account(tx, &member, &id)).await?,
    ))
}

pub(crate) async fn create_for_service_account(
    call: Call<Member, NoQuery, Body<ApiKeyRequest>>,
) -> Result<Reply<ApiKey>, Error> {
    let (member, id, new) =
        (call.who.clone(), ServiceAccountId::known(call.path.at(0)), new_key(&call.body.0)?);
    call.once(move |tx| {
        let (key, value) = api_keys::create_of_service_account(tx, &member, &id, new.clone())?;
        Ok::<_, Error>(shown(key, Some(value)))
    })
    .await
}

pub(crate) async fn revoke_of_service_account(call: Call<Member>) -> Result<Reply<Message>, Error> {
    let (member, id) = (call.who.clone(), ServiceAccountId::known(call.path.at(0)));
    let key = ApiKeyId::known(call.path.at(1));
    let work = move |tx: &mut Tx<'_>| api_keys::delete_of_service_account(tx, &member, &id, &key);
    call.app.auth.change(work).await?;
    Ok(revoked())
}
