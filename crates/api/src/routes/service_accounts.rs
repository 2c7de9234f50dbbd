//! Service accounts.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::Member;
use auth::service_accounts;
use store::Tx;
use types::ids::ServiceAccountId;
use types::parts::Sensitive;
use types::wire::{ServiceAccount, ServiceAccountRequest, ServiceAccountUpdate};

fn shown(stored: service_accounts::ServiceAccount, secret: Option<String>) -> ServiceAccount {
    ServiceAccount {
        client_id: Some(stored.id.to_string()),
        client_secret: secret.map(Sensitive),
        created_at: Some(stored.created_at),
        description: Some(stored.description),
        name: Some(stored.name),
        updated_at: Some(stored.updated_at),
    }
}

pub(crate) async fn list(call: Call<Member>) -> Result<Reply<Vec<ServiceAccount>>, Error> {
    let member = call.who.clone();
    let found = call.app.store.read(move |tx| service_accounts::list(tx, &member)).await?;
    Ok(Reply::of(&found.into_iter().map(|account| shown(account, None)).collect::<Vec<_>>()))
}

pub(crate) async fn create(
    call: Call<Member, NoQuery, Body<ServiceAccountRequest>>,
) -> Result<Reply<ServiceAccount>, Error> {
    let (member, asked) = (call.who.clone(), call.body.0.clone());
    let description = asked.description.unwrap_or_default();
    let reply = call
        .once(move |tx| {
            let (account, secret) =
                service_accounts::create(tx, &member, &asked.name, &description)?;
            Ok::<_, Error>(shown(account, Some(secret)))
        })
        .await;
    call.app.auth.forget();
    reply
}

pub(crate) async fn update(
    call: Call<Member, NoQuery, Body<ServiceAccountUpdate>>,
) -> Result<Reply<ServiceAccount>, Error> {
    let (member, id, asked) =
        (call.who.clone(), ServiceAccountId::known(call.path.name()), call.body.0);
    let work = move |tx: &mut Tx<'_>| {
        service_accounts::update(tx, &member, &id, asked.name.clone(), asked.description.clone())
    };
    Ok(Reply::of(&shown(call.app.auth.change(work).await?, None)))
}

pub(crate) async fn remove(call: Call<Member>) -> Result<Reply<ServiceAccount>, Error> {
    let (member, id) = (call.who.clone(), ServiceAccountId::known(call.path.name()));
    let work = move |tx: &mut Tx<'_>| service_accounts::delete(tx, &member, &id);
    Ok(Reply::of(&shown(call.app.auth.change(work).await?, None)))
}
