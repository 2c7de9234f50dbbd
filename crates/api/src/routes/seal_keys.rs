//! The keys that seal secrets in the database.

use crate::http::call::{Call, Person};
use crate::http::error::Error;
use crate::http::reply::Reply;
use schemars::JsonSchema;
use serde::Serialize;
use store::identity::accounts;

/// What a rotation did.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rotated {
    /// Id of the key that seals from now on.
    key: String,
    /// Rows that were sealed anew.
    rows: u64,
}

/// Makes a new key and brings every stored secret under it, while the server goes on. It is work on
/// what all accounts keep, so it is for those who run the server: administrators of the account of the first start.
pub(crate) async fn rotate(call: Call<Person>) -> Result<Reply<Rotated>, Error> {
    let first = call.app.store.read(accounts::first).await?;
    if !first.is_some_and(|account| call.who.0.administers(&account.id)) {
        return Err(auth::Denied::NotAccountAdmin.into());
    }
    let rotation = call.app.store.rotate_keys().await?;
    tracing::info!(by = %call.who.0.name, rows = rotation.rows, "secrets were sealed with a new key");
    Ok(Reply::of(&Rotated { key: rotation.active, rows: rotation.rows }))
}
