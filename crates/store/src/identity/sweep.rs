//! Removal of what has expired.

use super::grants;
use crate::{Error, Tx, params};

const SPENT_CODES_KEPT_S: i64 = 24 * 3600;

/// Deletes what has expired for good; called from time to time.
pub fn sweep(tx: &mut Tx<'_>) -> Result<u64, Error> {
    let now = tx.world().now();
    let mut gone = grants::delete_expired(tx, now)?;
    // Kept for a while after they expire, because a late second use still reveals a theft.
    let sql = "DELETE FROM authorization_codes WHERE expires_at <= $1";
    gone += tx.execute(sql, params![now.plus_s(-SPENT_CODES_KEPT_S)])?;
    for sql in [
        "DELETE FROM device_codes WHERE expires_at <= $1",
        "DELETE FROM browser_sessions WHERE expires_at <= $1",
        "DELETE FROM signing_keys WHERE retires_at <= $1",
    ] {
        gone += tx.execute(sql, params![now])?;
    }
    Ok(gone)
}
