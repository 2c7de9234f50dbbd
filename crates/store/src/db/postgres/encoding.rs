//! Which letters the database can hold.

use super::link::Link;
use crate::Error;

/// Refuses a database that cannot hold every text: the first letter that it lacks would end the
/// transaction of whoever writes it, and of all that share it.
pub(super) fn require_utf8(link: &mut Link) -> Result<(), Error> {
    let table = "pg_settings";
    let sql = "SELECT current_setting('server_encoding')";
    let found = link.query(table, sql, &[], usize::MAX)?;
    let row = found.rows.first().ok_or_else(|| Error::corrupt(table, "?", "no row"))?;
    match row.text(0)?.as_str() {
        "UTF8" => Ok(()),
        encoding => Err(Error::Unusable(format!(
            "the database has the encoding {encoding}, which lacks letters that people write; it must be UTF8: make another one with `createdb --encoding=UTF8 --template=template0 NAME`, and if this one is in use, move it there with `holm backup` and `holm restore`"
        ))),
    }
}
