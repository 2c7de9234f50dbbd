//! Usage: facts, the lives they are about, and the hours that follow from them.
//!
//! Here rows are read and written. Only the crate `meter` knows what facts mean and how days are
//! packed.

mod days;
mod facts;
mod hours;
mod lives;
mod proofs;
mod series;

pub use days::{
    Correction, Day, HourTotals, Packed, correct, corrections, put_day, read_days, unpacked_days,
};
pub use facts::{FactRow, Met, facts_of, insert_facts, sum};
pub use hours::{Added, add_hours, read_hours, read_hours_of, take_hours};
pub use lives::{
    Anchor, FactPosition, Life, Live, Owner, Phase, Until, is_owned, live, lives_after, lives_in,
    lives_out_of_order, lock, lock_ahead, lock_on, on_machine, own, remove_unowned, save,
};
pub(crate) use proofs::ANY_BOOT;
pub use proofs::{Proof, alive, machines, proof};
pub use series::{Class, Series, class, classes, find_series, read_series};

use crate::{Error, Tx, Value};

/// Numbers of rows that one statement writes or looks for.
const STEPS: [usize; 3] = [32, 8, 1];
/// Most values in one statement. SQLite searches all of them for each one, so more would be slower.
const VALUES_MAX: usize = 256;

/// Cuts a list into pieces of few different lengths, so that few statements need to be prepared.
pub(crate) fn pieces<T>(mut rest: &[T], columns: usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let fits =
            |step: &usize| *step <= rest.len() && (*step == 1 || step * columns <= VALUES_MAX);
        let length = STEPS.into_iter().find(fits)?;
        let (piece, after) = rest.split_at(length);
        rest = after;
        Some(piece)
    })
}

/// Returns placeholders such as `($1, $2), ($3, $4)`.
fn places(rows: usize, columns: usize) -> String {
    let row = |row: usize| {
        let places: Vec<_> =
            (1..=columns).map(|column| format!("${}", row * columns + column)).collect();
        format!("({})", places.join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// Writes many rows with few statements. `into` names table and columns, `clash` says what to do
/// with rows that already exist.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    into: &str,
    clash: &str,
    rows: &[Vec<Value>],
) -> Result<(), Error> {
    let columns = rows.first().map_or(0, Vec::len);
    for piece in pieces(rows, columns) {
        let sql = format!("INSERT INTO {into} VALUES {} {clash}", places(piece.len(), columns));
        tx.execute(&sql, &piece.concat())?;
    }
    Ok(())
}
