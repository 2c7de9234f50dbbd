//! The keys that encrypt secrets in the database.

use crate::http::call::{Call, Person};
use crate::http::error::Error;
use crate::http::reply::Reply;
use schemars::JsonSchema;
use serde::Serialize;
use store::identity::accounts;

/// The result of a rotation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rotated {
    /// Id of the key that is used from now on.
    key: String,
    /// Number of rows that were sealed again.
    rows: u64,
}

/// Makes a new key and seals every stored secret with it, while the server keeps running. It
/// affects the data of all accounts, so it is reserved for the people who run the server:
/// administrators of the account that the first start created.
pub(crate) async fn rotate(call: Call<Person>) -> Result<Reply<Rotated>, Error> {
    let first = call.app.store.read(accounts::first).await?;
    if !first.is_some_and(|account| call.who.0.administers(&account.id)) {
        return Err(auth::Denied::NotAccountAdmin.into());
    }
    let rotation = call.app.store.rotate_keys().await?;
    tracing::info!(by = %call.who.0.name, rows = rotation.rows, "secrets were sealed with a new key");
    Ok(Reply::of(&Rotated { key: rotation.active, rows: rotation.rows }))
}
