//! Registration of programs that may ask people for access; for account admins.

use super::endpoints::json_answer;
use super::{Body, Caller, identify};
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use auth::Auth;
use auth::clients::{self, NewClient, Registered};
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use types::Scope;
use types::Timestamp;
use types::ids::{AccountId, ClientId};

#[derive(Deserialize)]
struct ClientRequest {
    name: String,
    redirect_uris: Vec<String>,
    #[serde(default)]
    confidential: bool,
    account_id: Option<AccountId>,
}

/// A client. The secret is shown only once, when the client is created.
#[derive(Serialize)]
struct ClientView {
    client_id: ClientId,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
    name: String,
    redirect_uris: Vec<String>,
    confidential: bool,
    account_id: AccountId,
    created_at: Timestamp,
    created_by: String,
}

impl From<Registered> for ClientView {
    fn from(client: Registered) -> Self {
        Self {
            client_id: client.id,
            client_secret: None,
            name: client.name,
            redirect_uris: client.redirect_uris,
            confidential: client.secret.is_some(),
            account_id: client.account,
            created_at: client.created_at,
            created_by: client.created_by,
        }
    }
}

pub(crate) async fn list(State(auth): State<Auth>, Caller(who): Caller) -> Result<Response, Error> {
    who.may(&[Scope::Admin])?;
    let found = auth.store().read(move |tx| clients::list(tx, &who)).await?;
    Ok(json_answer(&found.into_iter().map(ClientView::from).collect::<Vec<_>>()))
}

pub(crate) async fn create(
    State(auth): State<Auth>,
    Caller(_): Caller,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Error> {
    // The body may have come long after the head, and the caller may have lost the right since.
    let who = identify(&auth, &headers).await?;
    who.may(&[Scope::Admin])?;
    let wanted: ClientRequest = serde_json::from_slice(&body)
        .map_err(|error| Malformed::ClientBody { why: error.to_string() })?;
    let ClientRequest { name, redirect_uris, confidential, account_id: account } = wanted;
    let new = NewClient { name, redirect_uris, confidential, account };
    let (client, secret) = auth.change(move |tx| clients::create(tx, &who, new.clone())).await?;
    Ok(json_answer(&ClientView { client_secret: secret, ..client.into() }))
}

pub(crate) async fn remove(
    State(auth): State<Auth>,
    Caller(who): Caller,
    Path(id): Path<ClientId>,
) -> Result<Response, Error> {
    who.may(&[Scope::Admin])?;
    if id.as_str().contains('\0') {
        return Err(Malformed::PathNul.into());
    }
    auth.change(move |tx| clients::delete(tx, &who, &id)).await?;
    Ok(json_answer(&serde_json::json!({})))
}
