//! The owners of usage. A class is one dimension of a workspace; a series is one resource in it.

use crate::{Error, Row, Tx, Value, params};
use types::ids::AccountId;
use types::usage::Dimension;

const CLASSES: &str = "usage_classes";
const SERIES: &str = "usage_series";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub id: i64,
    pub account: AccountId,
    pub workspace: String,
    pub dimension: Dimension,
    /// Number of series, which are numbered from 1.
    pub series: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub id: i64,
    pub name: String,
    pub uuid: String,
}

/// Returns the number of a class, which is created if necessary.
pub fn class(
    tx: &mut Tx<'_>,
    account: &AccountId,
    workspace: &str,
    dimension: Dimension,
) -> Result<i64, Error> {
    let find =
        "SELECT id FROM usage_classes WHERE account_id = $1 AND workspace = $2 AND dimension = $3";
    // The conflict target is not named, so that it is no failure if another server takes the same
    // number at the same time.
    let make = "INSERT INTO usage_classes (id, account_id, workspace, dimension, series)
                SELECT COALESCE(MAX(id), 0) + 1, $1, $2, $3, 0 FROM usage_classes WHERE true ON CONFLICT DO NOTHING";
    loop {
        let wanted = params![account, workspace, dimension.name()];
        if let Some(row) = tx.find(CLASSES, find, wanted)? {
            return row.int(0);
        }
        tx.execute(make, wanted)?;
    }
}

/// Returns the classes of an account, or of all accounts.
pub fn classes(tx: &mut Tx<'_>, account: Option<&AccountId>) -> Result<Vec<Class>, Error> {
    let columns = "SELECT id, account_id, workspace, dimension, series FROM usage_classes";
    let rows = match account {
        Some(account) => {
            tx.query(CLASSES, &format!("{columns} WHERE account_id = $1"), params![account])?
        }
        None => tx.query(CLASSES, columns, params![])?,
    };
    rows.iter().map(read_class).collect()
}

fn read_class(row: &Row) -> Result<Class, Error> {
    let dimension = dimension(&row.text(3)?)?;
    let account = AccountId::known(row.text(1)?);
    Ok(Class { id: row.int(0)?, account, workspace: row.text(2)?, dimension, series: row.int(4)? })
}

pub(super) fn dimension(name: &str) -> Result<Dimension, Error> {
    Dimension::parse(name).ok_or_else(|| Error::corrupt(CLASSES, name, "an unknown dimension"))
}

/// Returns the number of a series in its class. Creates it if necessary, which locks the class
/// until the end of the transaction.
pub fn find_series(tx: &mut Tx<'_>, class: i64, name: &str, uuid: &str) -> Result<i64, Error> {
    let find = "SELECT id FROM usage_series WHERE class_id = $1 AND name = $2 AND uuid = $3";
    if let Some(row) = tx.find(SERIES, find, params![class, name, uuid])? {
        return row.int(0);
    }
    let next = "UPDATE usage_classes SET series = series + 1 WHERE id = $1 RETURNING series";
    let number = tx.find(CLASSES, next, params![class])?;
    let number = number
        .ok_or_else(|| Error::corrupt(CLASSES, class.to_string(), "the row is missing"))?
        .int(0)?;
    // If we had to wait for the class, the series may have been created meanwhile; then our number
    // stays unused.
    if let Some(row) = tx.find(SERIES, find, params![class, name, uuid])? {
        return row.int(0);
    }
    let make = "INSERT INTO usage_series (class_id, id, name, uuid) VALUES ($1, $2, $3, $4)";
    tx.execute(make, params![class, number, name, uuid])?;
    Ok(number)
}

/// Returns the series of a class with numbers between two, both inclusive, and with this name or id
/// if given.
pub fn read_series(
    tx: &mut Tx<'_>,
    class: i64,
    (first, last): (i64, i64),
    name: Option<&str>,
    uuid: Option<&str>,
) -> Result<Vec<Series>, Error> {
    let mut sql =
        "SELECT id, name, uuid FROM usage_series WHERE class_id = $1 AND id BETWEEN $2 AND $3"
            .to_owned();
    let mut values: Vec<Value> = vec![class.into(), first.into(), last.into()];
    for (column, wanted) in [("name", name), ("uuid", uuid)] {
        if let Some(wanted) = wanted {
            values.push(wanted.into());
            sql.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }
    let rows = tx.query(SERIES, &sql, &values)?;
    let read = |mut row: Row| {
        Ok(Series { id: row.int(0)?, name: row.take_text(1)?, uuid: row.take_text(2)? })
    };
    rows.into_iter().map(read).collect()
}
