//! The tables that a backup contains.

use crate::{Error, Tx, Value};

/// Tables in which the target database has rows of its own.
const NOT_COPIED: [&str; 2] = ["migrations", "feed_origin"];

/// A table, as described by the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    /// Columns of the primary key.
    pub(super) key: Vec<String>,
}

/// Returns the tables that a backup contains.
pub(super) fn tables(tx: &mut Tx<'_>) -> Result<Vec<Table>, Error> {
    let mut columns = tx.columns()?;
    // Pages follow the key in its own column order, because otherwise no index would serve them.
    let mut keys = columns.clone();
    keys.retain(|(_, _, place)| *place > 0);
    keys.sort_by_key(|(_, _, place)| *place);
    columns.retain(|(table, _, _)| !NOT_COPIED.contains(&table.as_str()));
    let mut tables: Vec<Table> = Vec::new();
    for (name, column, _) in columns {
        if tables.last().is_none_or(|last| last.name != name) {
            let key = keys
                .iter()
                .filter(|(table, _, _)| *table == name)
                .map(|(_, column, _)| column.clone())
                .collect();
            tables.push(Table { name, key, columns: Vec::new() });
        }
        if let Some(table) = tables.last_mut() {
            table.columns.push(column);
        }
    }
    match tables.iter().find(|table| table.key.is_empty()) {
        Some(table) => {
            Err(Error::Unusable(format!("the table {} has no primary key to go by", table.name)))
        }
        None => Ok(tables),
    }
}

impl Table {
    /// Returns whether these are its columns. The databases may have them in different orders.
    pub(super) fn has(&self, columns: &[String]) -> bool {
        let sorted = |columns: &[String]| {
            let mut columns = columns.to_vec();
            columns.sort_unstable();
            columns
        };
        sorted(&self.columns) == sorted(columns)
    }

    /// Returns the values of the key in a row.
    pub(super) fn key_of(&self, row: &[Value]) -> Vec<Value> {
        let place = |name| self.columns.iter().position(|column| column == name);
        self.key.iter().filter_map(|name| row.get(place(name)?).cloned()).collect()
    }
}
