//! Proofs that a machine was up.

use crate::{Error, Tx, params};
use types::Timestamp;
use types::instance::Stamp;

const TABLE: &str = "usage_proofs";
/// Boot number that stands for any boot of a machine.
pub(crate) const ANY_BOOT: i64 = 0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    pub at: i64,
    pub uptime_ms: i64,
}

/// Records that a machine is up. Proofs may arrive late or twice: the latest counts.
pub fn alive(
    tx: &mut Tx<'_>,
    machine: &str,
    at: Timestamp,
    stamp: Option<Stamp>,
) -> Result<(), Error> {
    let sql = "INSERT INTO usage_proofs (machine, boot, at, mono) VALUES ($1, $2, $3, $4)
               ON CONFLICT (machine, boot) DO UPDATE SET
                   at = CASE WHEN excluded.at > usage_proofs.at THEN excluded.at ELSE usage_proofs.at END,
                   mono = CASE WHEN excluded.mono > usage_proofs.mono THEN excluded.mono ELSE usage_proofs.mono END";
    tx.execute(sql, params![machine, ANY_BOOT, at, 0])?;
    if let Some(stamp) = stamp {
        tx.execute(sql, params![machine, stamp.boot, at, stamp.uptime_ms])?;
    }
    Ok(())
}

/// Returns the last proof of one boot of a machine, or of any with [`ANY_BOOT`].
pub fn proof(tx: &mut Tx<'_>, machine: &str, boot: i64) -> Result<Option<Proof>, Error> {
    let sql = "SELECT at, mono FROM usage_proofs WHERE machine = $1 AND boot = $2";
    let row = tx.find(TABLE, sql, params![machine, boot])?;
    row.map(|row| Ok(Proof { at: row.int(0)?, uptime_ms: row.int(1)? })).transpose()
}

/// Returns the machines that were ever up, those seen last first.
pub fn machines(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    let sql = "SELECT machine FROM usage_proofs GROUP BY machine ORDER BY MAX(at) DESC, machine";
    tx.query(TABLE, sql, params![])?.into_iter().map(|mut row| row.take_text(0)).collect()
}
