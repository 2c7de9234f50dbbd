//! The server's own values that outlive a restart, such as the sealed key that signs cursors.
//! Callers seal the secrets among them, in the context `settings/<name>`.

use crate::{Error, Tx, params};

const TABLE: &str = "settings";

pub fn get(tx: &mut Tx<'_>, name: &str) -> Result<Option<String>, Error> {
    let row = tx.find(TABLE, "SELECT value FROM settings WHERE name = $1", params![name])?;
    row.map(|mut row| row.take_text(0)).transpose()
}

pub fn set(tx: &mut Tx<'_>, name: &str, value: &str) -> Result<(), Error> {
    tx.execute(
        "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        params![name, value],
    )?;
    Ok(())
}

pub fn remove(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    tx.execute("DELETE FROM settings WHERE name = $1", params![name]).map(drop)
}

/// Lists names with a common beginning in order: up to `limit` of those after `after`.
pub fn names(
    tx: &mut Tx<'_>,
    beginning: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM settings WHERE name LIKE $1 AND name > $2 ORDER BY name LIMIT $3";
    let rows = tx.query(TABLE, sql, params![format!("{beginning}%"), after, limit])?;
    rows.into_iter().map(|mut row| row.take_text(0)).collect()
}

/// Returns the names with a common beginning, and their values: up to `limit`, in order.
pub fn all(tx: &mut Tx<'_>, beginning: &str, limit: i64) -> Result<Vec<(String, String)>, Error> {
    let sql = "SELECT name, value FROM settings WHERE name LIKE $1 ORDER BY name LIMIT $2";
    let rows = tx.query(TABLE, sql, params![format!("{beginning}%"), limit])?;
    rows.into_iter().map(|mut row| Ok((row.take_text(0)?, row.take_text(1)?))).collect()
}

/// Returns the stored value, after storing `value` if there was none: the first server decides.
pub fn get_or_insert(tx: &mut Tx<'_>, name: &str, value: &str) -> Result<String, Error> {
    if let Some(value) = get(tx, name)? {
        return Ok(value);
    }
    tx.execute(
        "INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
        params![name, value],
    )?;
    get(tx, name)?.ok_or_else(|| Error::corrupt(TABLE, name, "it vanished while it was written"))
}
