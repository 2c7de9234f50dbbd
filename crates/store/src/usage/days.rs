//! Packed days of usage of a class, and corrections to them.

use super::insert;
use crate::{Error, Row, Tx, params};
use types::Timestamp;

const TABLE: &str = "usage_days";
const CORRECTIONS: &str = "usage_corrections";

/// How much of a packed day to read. Each is much more than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Packed {
    Total,
    HourTotals,
    Sums,
    Hours,
}

/// What all series of a class used together in each hour of a day.
pub type HourTotals = [i128; 24];

/// One day of a class. Parts that were not requested are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Day {
    pub class: i64,
    pub day: i64,
    pub total: i128,
    /// `None` also for a day that was packed by an early release. Its `hours` are read instead.
    pub hour_totals: Option<HourTotals>,
    pub sums: String,
    pub hours: String,
}

/// A late change to a day that had already been reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Correction {
    pub class: i64,
    pub day: i64,
    pub series: i64,
    pub noted_at: Timestamp,
    pub amount: i64,
}

/// Returns the days of a class from `first` up to but not including `end`, in order.
pub fn read_days(
    tx: &mut Tx<'_>,
    class: i64,
    first: i64,
    end: i64,
    packed: Packed,
) -> Result<Vec<Day>, Error> {
    let columns = match packed {
        Packed::Total => "'', '', ''",
        Packed::HourTotals => "hour_totals, '', CASE WHEN hour_totals = '' THEN hours ELSE '' END",
        Packed::Sums => "'', sums, ''",
        Packed::Hours => "'', '', hours",
    };
    let sql = format!(
        "SELECT class_id, day, total, {columns} FROM usage_days
         WHERE class_id = $1 AND day >= $2 AND day < $3 ORDER BY day"
    );
    tx.query(TABLE, &sql, params![class, first, end])?.into_iter().map(read).collect()
}

fn read(mut row: Row) -> Result<Day, Error> {
    let day = row.int(1)?;
    let corrupt = |error| Error::corrupt(TABLE, day.to_string(), error);
    let total = row.text(2)?.parse().map_err(corrupt)?;
    let totals: Vec<i128> = row
        .text(3)?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(corrupt)?;
    let hour_totals = match totals.as_slice() {
        [] => None,
        totals => {
            Some(totals.try_into().map_err(|error| Error::corrupt(TABLE, day.to_string(), error))?)
        }
    };
    let (sums, hours) = (row.take_text(4)?, row.take_text(5)?);
    Ok(Day { class: row.int(0)?, day, total, hour_totals, sums, hours })
}

/// Writes numbers as a text, with spaces between them.
fn written(totals: &HourTotals) -> String {
    totals.map(|total| total.to_string()).join(" ")
}

/// Writes a packed day, replacing an earlier version. Its class must be locked, as
/// [`unpacked_days`] does.
pub fn put_day(tx: &mut Tx<'_>, day: &Day) -> Result<(), Error> {
    // Empty: not known.
    let hour_totals = day.hour_totals.as_ref().map_or_else(String::new, written);
    let row = vec![
        day.class.into(),
        day.day.into(),
        day.total.to_string().into(),
        hour_totals.into(),
        day.sums.as_str().into(),
        day.hours.as_str().into(),
    ];
    let clash = "ON CONFLICT (class_id, day) DO UPDATE SET
                 total = excluded.total, hour_totals = excluded.hour_totals,
                 sums = excluded.sums, hours = excluded.hours";
    insert(tx, "usage_days (class_id, day, total, hour_totals, sums, hours)", clash, &[row])
}

/// Returns up to `limit` classes and days with unpacked hours before `end`. Locks the classes until
/// the end of the transaction, so that only one server packs at a time.
pub fn unpacked_days(tx: &mut Tx<'_>, end: i64, limit: i64) -> Result<Vec<(i64, i64)>, Error> {
    let find = "SELECT DISTINCT class_id, hour / 24 FROM usage_hours WHERE hour < $1
                ORDER BY class_id, hour / 24 LIMIT $2";
    let found = tx.query("usage_hours", find, params![end, limit])?;
    let days: Vec<(i64, i64)> =
        found.iter().map(|row| Ok((row.int(0)?, row.int(1)?))).collect::<Result<_, Error>>()?;
    let mut classes: Vec<i64> = days.iter().map(|(class, _)| *class).collect();
    classes.dedup();
    let hold = tx.locking("SELECT id FROM usage_classes WHERE id = $1").into_owned();
    for class in classes {
        tx.query("usage_classes", &hold, params![class])?;
    }
    Ok(days)
}

/// Records corrections. The list must not contain a day of a series twice.
pub fn correct(tx: &mut Tx<'_>, corrections: &[Correction]) -> Result<(), Error> {
    let values = |correction: &Correction| {
        vec![
            correction.class.into(),
            correction.day.into(),
            correction.series.into(),
            correction.noted_at.into(),
            correction.amount.into(),
        ]
    };
    let rows: Vec<_> = corrections.iter().map(values).collect();
    let clash = "ON CONFLICT (class_id, day, series_id, noted_at)
                 DO UPDATE SET amount = usage_corrections.amount + excluded.amount";
    insert(tx, "usage_corrections (class_id, day, series_id, noted_at, amount)", clash, &rows)
}

/// Returns the corrections of a class for days from `first` up to but not including `end`.
pub fn corrections(
    tx: &mut Tx<'_>,
    class: i64,
    first: i64,
    end: i64,
) -> Result<Vec<Correction>, Error> {
    let sql = "SELECT class_id, day, series_id, noted_at, amount FROM usage_corrections
               WHERE class_id = $1 AND day >= $2 AND day < $3 ORDER BY day, series_id, noted_at";
    let read = |row: &Row| {
        Ok(Correction {
            class: row.int(0)?,
            day: row.int(1)?,
            series: row.int(2)?,
            noted_at: row.time(3)?,
            amount: row.int(4)?,
        })
    };
    tx.query(CORRECTIONS, sql, params![class, first, end])?.iter().map(read).collect()
}
