//! Ledgers: which batch of each is the last that was taken in. Every server has one.

use crate::{Error, Tx, params};
use types::Timestamp;
use types::model_books::Batch;

const TABLE: &str = "model_ledgers";

/// Returns the number and position where a ledger resumes after a start. Writes the ledger's row
/// first: a batch of a killed process may still be on its way in, and this waits for it.
pub(super) fn begin(tx: &mut Tx<'_>, ledger: &str) -> Result<(i64, i64), Error> {
    let sql = "INSERT INTO model_ledgers (ledger, number, position, seen_at) VALUES ($1, 0, 0, $2)
               ON CONFLICT (ledger) DO UPDATE SET seen_at = excluded.seen_at";
    let now = tx.world().now();
    tx.execute(sql, params![ledger, now])?;
    let sql = "SELECT number, position FROM model_ledgers WHERE ledger = $1";
    match tx.find(TABLE, sql, params![ledger])? {
        Some(row) => Ok((row.int(0)?, row.int(1)?)),
        None => Ok((0, 0)),
    }
}

/// Records the batch, and returns true if it is new.
pub(super) fn note(tx: &mut Tx<'_>, batch: &Batch) -> Result<bool, Error> {
    let sql = "INSERT INTO model_ledgers (ledger, number, position, seen_at) VALUES ($1, $2, $3, $4)
               ON CONFLICT (ledger) DO UPDATE SET number = excluded.number, seen_at = excluded.seen_at,
                   position = CASE WHEN excluded.position > model_ledgers.position
                       THEN excluded.position ELSE model_ledgers.position END
               WHERE model_ledgers.number < excluded.number";
    let now = tx.world().now();
    let values = params![batch.ledger.as_str(), batch.number, batch.position, now];
    Ok(tx.execute(sql, values)? == 1)
}

/// Deletes ledgers that were last seen before a time and hold nothing.
pub(super) fn trim(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    let sql = "DELETE FROM model_ledgers WHERE ledger IN (
                   SELECT l.ledger FROM model_ledgers l WHERE l.seen_at < $1
                   AND NOT EXISTS (SELECT 1 FROM model_grants g WHERE g.ledger = l.ledger) LIMIT $2)";
    tx.execute(sql, params![before, limit])
}
