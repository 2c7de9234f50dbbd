//! Hours of usage that are not packed yet.

use super::insert;
use crate::{Error, Row, Tx, params};
use types::ids::AccountId;

const TABLE: &str = "usage_hours";

/// An amount to be added to one hour of a series. It may be negative, but no sum ever is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    pub class: i64,
    pub hour: i64,
    pub series: i64,
    pub amount: i64,
}

/// Adds to hours. The list must not contain an hour of a series twice.
pub fn add_hours(tx: &mut Tx<'_>, hours: &[Added]) -> Result<(), Error> {
    let mut hours = hours.to_vec();
    // The same order everywhere, so that two servers do not deadlock.
    hours.sort_unstable_by_key(|added| (added.class, added.hour, added.series));
    let values = |added: &Added| {
        vec![added.class.into(), added.hour.into(), added.series.into(), added.amount.into()]
    };
    let rows: Vec<_> = hours.iter().map(values).collect();
    let clash = "ON CONFLICT (class_id, hour, series_id) DO UPDATE SET amount = usage_hours.amount + excluded.amount";
    insert(tx, "usage_hours (class_id, hour, series_id, amount)", clash, &rows)
}

/// Returns the unpacked hours of a class from `first` up to but not including `end`, ordered by
/// hour and series.
pub fn read_hours(tx: &mut Tx<'_>, class: i64, first: i64, end: i64) -> Result<Vec<Added>, Error> {
    let sql = "SELECT class_id, hour, series_id, amount FROM usage_hours
               WHERE class_id = $1 AND hour >= $2 AND hour < $3 ORDER BY hour, series_id";
    tx.query(TABLE, sql, params![class, first, end])?.iter().map(read).collect()
}

/// Returns hours like [`read_hours`], of all classes of an account, in no particular order.
pub fn read_hours_of(
    tx: &mut Tx<'_>,
    account: &AccountId,
    first: i64,
    end: i64,
) -> Result<Vec<Added>, Error> {
    let sql = "SELECT h.class_id, h.hour, h.series_id, h.amount FROM usage_hours h
               JOIN usage_classes c ON c.id = h.class_id
               WHERE c.account_id = $1 AND h.hour >= $2 AND h.hour < $3";
    tx.query(TABLE, sql, params![account, first, end])?.iter().map(read).collect()
}

/// Returns hours like [`read_hours`], in no particular order, and deletes them.
pub fn take_hours(tx: &mut Tx<'_>, class: i64, first: i64, end: i64) -> Result<Vec<Added>, Error> {
    let sql = "DELETE FROM usage_hours WHERE class_id = $1 AND hour >= $2 AND hour < $3
               RETURNING class_id, hour, series_id, amount";
    tx.query(TABLE, sql, params![class, first, end])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Added, Error> {
    Ok(Added { class: row.int(0)?, hour: row.int(1)?, series: row.int(2)?, amount: row.int(3)? })
}
