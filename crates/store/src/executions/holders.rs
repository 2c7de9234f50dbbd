//! Machines that take tasks, and their leases: one row for everything that a machine holds.

use crate::{Error, Row, Tx, params};
use types::Timestamp;

const TABLE: &str = "holders";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub name: String,
    /// Number of tasks that it runs at once.
    pub slots: i64,
    /// Memory for all of them together.
    pub memory_mb: i64,
    /// Time of the renewal on its own clock. Others check whether it changes, not what it says.
    pub renewed_at: Timestamp,
}

/// Renews a lease. Returns `false` if the holder is new or its lease had been taken away.
pub fn renew(tx: &mut Tx<'_>, holder: &Holder) -> Result<bool, Error> {
    let params = params![holder.name.as_str(), holder.slots, holder.memory_mb, holder.renewed_at];
    let sql = "UPDATE holders SET slots = $2, memory_mb = $3, renewed_at = $4 WHERE name = $1";
    if tx.execute(sql, params)? == 1 {
        return Ok(true);
    }
    let sql = "INSERT INTO holders (name, slots, memory_mb, renewed_at) VALUES ($1, $2, $3, $4)";
    tx.execute(sql, params).map(|_| false)
}

pub fn list(tx: &mut Tx<'_>) -> Result<Vec<Holder>, Error> {
    tx.query(
        TABLE,
        "SELECT name, slots, memory_mb, renewed_at FROM holders ORDER BY name",
        params![],
    )?
    .iter()
    .map(read)
    .collect()
}

/// Lists holders like [`list`], but for one caller at a time: a caller who asks for room waits for
/// those who asked before.
pub fn lock_all(tx: &mut Tx<'_>) -> Result<Vec<Holder>, Error> {
    let sql = tx.locking("SELECT name, slots, memory_mb, renewed_at FROM holders ORDER BY name");
    tx.query(TABLE, &sql, params![])?.iter().map(read).collect()
}

/// Returns true if a lease is unchanged since it was seen, and then locks it, so that it stays so.
/// Skips one that another transaction has locked.
pub fn lock_if_stale(tx: &mut Tx<'_>, name: &str, renewed_at: Timestamp) -> Result<bool, Error> {
    let sql = tx.locking_free("SELECT name FROM holders WHERE name = $1 AND renewed_at = $2");
    Ok(tx.find(TABLE, &sql, params![name, renewed_at])?.is_some())
}

pub fn remove(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    tx.execute("DELETE FROM holders WHERE name = $1", params![name]).map(drop)
}

fn read(row: &Row) -> Result<Holder, Error> {
    Ok(Holder {
        name: row.text(0)?,
        slots: row.int(1)?,
        memory_mb: row.int(2)?,
        renewed_at: row.time(3)?,
    })
}
