//! Authorization codes, which a browser carries from the consent page to a client.

use super::Digest;
use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::{ClientId, GrantId, UserId};

#[derive(Debug, Clone)]
pub struct Code {
    pub digest: Digest,
    pub client: ClientId,
    pub user: UserId,
    pub redirect_uri: String,
    /// The PKCE challenge, which is a SHA-256 digest.
    pub challenge: Option<String>,
    pub scope: String,
    pub expires_at: Timestamp,
    /// The grant that resulted from its first use.
    pub grant: Option<GrantId>,
}

pub fn create(tx: &mut Tx<'_>, code: &Code) -> Result<(), Error> {
    let sql = "INSERT INTO authorization_codes (digest, client_id, user_id, redirect_uri, challenge, scope, expires_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    tx.execute(
        sql,
        params![
            &code.digest,
            &code.client,
            &code.user,
            code.redirect_uri.as_str(),
            code.challenge.as_deref(),
            code.scope.as_str(),
            code.expires_at
        ],
    )?;
    Ok(())
}

/// Finds a code and locks it, so that whoever uses it at the same time finds it spent.
pub fn lock(tx: &mut Tx<'_>, digest: &Digest) -> Result<Option<Code>, Error> {
    let sql = "SELECT client_id, user_id, redirect_uri, challenge, scope, expires_at, grant_id
               FROM authorization_codes WHERE digest = $1";
    let sql = tx.locking(sql);
    let Some(row) = tx.find("authorization_codes", &sql, params![digest])? else { return Ok(None) };
    Ok(Some(Code {
        digest: *digest,
        client: ClientId::known(row.text(0)?),
        user: UserId::known(row.text(1)?),
        redirect_uri: row.text(2)?,
        challenge: row.opt_text(3)?,
        scope: row.text(4)?,
        expires_at: row.time(5)?,
        grant: row.opt_text(6)?.map(GrantId::known),
    }))
}

/// Spends a code for `grant`. It must be locked and not spent.
pub fn spend(tx: &mut Tx<'_>, digest: &Digest, grant: &GrantId) -> Result<(), Error> {
    let sql = "UPDATE authorization_codes SET grant_id = $2 WHERE digest = $1";
    tx.execute(sql, params![digest, grant]).map(drop)
}

pub(super) fn delete_of_user(tx: &mut Tx<'_>, user: &UserId) -> Result<(), Error> {
    tx.execute("DELETE FROM authorization_codes WHERE user_id = $1", params![user]).map(drop)
}
