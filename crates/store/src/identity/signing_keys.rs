//! Keys that sign access tokens, sealed under their id.

use super::announce;
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use std::fmt;
use types::Timestamp;

#[derive(Clone)]
pub struct SigningKey {
    /// Id, used as the `kid` of tokens.
    pub id: String,
    /// Private part, as text.
    pub seed: String,
    pub created_at: Timestamp,
    /// Time until which the key still verifies. `None` for the key that signs.
    pub retires_at: Option<Timestamp>,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

fn read(tx: &Tx<'_>, row: &Row) -> Result<SigningKey, Error> {
    let id = row.text(0)?;
    Ok(SigningKey {
        seed: tx.shared().keyring.read().open(&id, &row.text(1)?)?,
        created_at: row.time(2)?,
        retires_at: row.opt_time(3)?,
        id,
    })
}

/// Lists the keys that sign or still verify, newest first.
pub fn list(tx: &mut Tx<'_>) -> Result<Vec<SigningKey>, Error> {
    let now = tx.world().now();
    let sql = "SELECT id, sealed_seed, created_at, retires_at FROM signing_keys
               WHERE retires_at IS NULL OR retires_at > $1 ORDER BY created_at DESC, id";
    let rows = tx.query("signing_keys", sql, params![now])?;
    rows.iter().map(|row| read(tx, row)).collect()
}

/// Makes other servers that want to change keys wait until this transaction ends.
pub fn hold(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.hold("signing_keys")
}

/// Makes `key` the one that signs; earlier keys verify until `retires_at`.
pub fn rotate(tx: &mut Tx<'_>, key: &SigningKey, retires_at: Timestamp) -> Result<(), Error> {
    hold(tx)?;
    let sql = "UPDATE signing_keys SET retires_at = $1 WHERE retires_at IS NULL";
    tx.execute(sql, params![retires_at])?;
    let (sealed, seal_key) = {
        let keyring = tx.shared().keyring.read();
        (keyring.seal(&key.id, &key.seed)?, keyring.active_id().to_owned())
    };
    let sql =
        "INSERT INTO signing_keys (id, sealed_seed, seal_key, created_at) VALUES ($1, $2, $3, $4)";
    tx.execute(sql, params![key.id.as_str(), sealed, seal_key, key.created_at])?;
    announce(tx, None, "signing-key", &key.id, Act::Created, "")
}
