//! OAuth clients: programs that an account has registered to ask its people for access.

use super::{Digest, announce};
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{AccountId, ClientId};

#[derive(Debug, Clone)]
pub struct Client {
    pub id: ClientId,
    pub account: AccountId,
    pub name: String,
    /// Allowed redirect addresses, compared exactly.
    pub redirect_uris: Vec<String>,
    /// Digest of the secret; `None` for a public client, which cannot keep one.
    pub secret: Option<Digest>,
    pub created_at: Timestamp,
    pub created_by: String,
}

const COLUMNS: &str = "id, account_id, name, redirect_uris, secret_digest, created_at, created_by";

fn read(row: &Row) -> Result<Client, Error> {
    let id = row.text(0)?;
    Ok(Client {
        account: AccountId::known(row.text(1)?),
        name: row.text(2)?,
        redirect_uris: serde_json::from_str(&row.text(3)?)
            .map_err(|error| Error::corrupt("oauth_clients", id.as_str(), error))?,
        secret: Digest::opt_read(row, 4)?,
        created_at: row.time(5)?,
        created_by: row.text(6)?,
        id: ClientId::known(id),
    })
}

pub fn create(tx: &mut Tx<'_>, client: &Client) -> Result<(), Error> {
    let sql = format!("INSERT INTO oauth_clients ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7)");
    let redirect_uris = serde_json::to_string(&client.redirect_uris).map_err(Error::database)?;
    tx.execute(
        &sql,
        params![
            &client.id,
            &client.account,
            client.name.as_str(),
            redirect_uris,
            client.secret.as_ref(),
            client.created_at,
            client.created_by.as_str()
        ],
    )?;
    announce(tx, None, "oauth-client", client.id.as_str(), Act::Created, &client.created_by)
}

pub fn find(tx: &mut Tx<'_>, id: &ClientId) -> Result<Option<Client>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM oauth_clients WHERE id = $1");
    tx.find("oauth_clients", &sql, params![id])?.as_ref().map(read).transpose()
}

pub fn list(tx: &mut Tx<'_>, account: &AccountId) -> Result<Vec<Client>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM oauth_clients WHERE account_id = $1 ORDER BY created_at, id"
    );
    tx.query("oauth_clients", &sql, params![account])?.iter().map(read).collect()
}

/// Removes the client along with the tokens that it was given.
pub fn delete(
    tx: &mut Tx<'_>,
    account: &AccountId,
    id: &ClientId,
    by: &str,
) -> Result<bool, Error> {
    let sql = "DELETE FROM oauth_clients WHERE account_id = $1 AND id = $2";
    if tx.execute(sql, params![account, id])? == 0 {
        return Ok(false);
    }
    super::grants::delete_of_client(tx, id)?;
    announce(tx, None, "oauth-client", id.as_str(), Act::Deleted, by)?;
    Ok(true)
}
