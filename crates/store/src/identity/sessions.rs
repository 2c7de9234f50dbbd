//! Sessions of browsers in which somebody has signed in.

use super::Digest;
use crate::{Error, Tx, params};
use types::Timestamp;
use types::ids::UserId;

pub fn create(
    tx: &mut Tx<'_>,
    digest: &Digest,
    user: &UserId,
    expires_at: Timestamp,
) -> Result<(), Error> {
    let sql = "INSERT INTO browser_sessions (digest, user_id, expires_at) VALUES ($1, $2, $3)";
    tx.execute(sql, params![digest, user, expires_at])?;
    Ok(())
}

/// Returns the person to whom the session belongs, unless it has ended.
pub fn find(tx: &mut Tx<'_>, digest: &Digest) -> Result<Option<UserId>, Error> {
    let now = tx.world().now();
    let sql = "SELECT user_id FROM browser_sessions WHERE digest = $1 AND expires_at > $2";
    tx.find("browser_sessions", sql, params![digest, now])?
        .map(|row| Ok(UserId::known(row.text(0)?)))
        .transpose()
}

pub fn delete(tx: &mut Tx<'_>, digest: &Digest) -> Result<(), Error> {
    tx.execute("DELETE FROM browser_sessions WHERE digest = $1", params![digest])?;
    Ok(())
}

pub fn delete_of_user(tx: &mut Tx<'_>, user: &UserId) -> Result<(), Error> {
    tx.execute("DELETE FROM browser_sessions WHERE user_id = $1", params![user])?;
    Ok(())
}
