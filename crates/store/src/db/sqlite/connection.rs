//! Connections to the file of SQLite, and the statements that run on them.

use crate::value::{Collector, Portion};
use crate::{Error, Row, Value};
use rusqlite::config::DbConfig;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Statement};
use std::path::Path;
use std::time::Duration;

/// Memory for database pages on the writer's connection and on each reader's. Readers find most
/// pages in the kernel's cache anyway, and there are several of them.
pub(super) const WRITER_CACHE_KIB: u32 = 16_384;
pub(super) const READER_CACHE_KIB: u32 = 2_048;

pub(super) fn connect(file: &Path, cache_kib: u32) -> Result<Connection, Error> {
    let conn = Connection::open(file)?;
    conn.busy_timeout(Duration::from_secs(10))?;
    conn.set_prepared_statement_cache_capacity(256);
    // Otherwise a statement whose parameter decides whether a partial index can be used is prepared
    // again for each new value.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // FULL: in WAL mode, a commit has reached the disk before it returns. The module `checkpoint`
    // moves the log into the database.
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA cache_size = -{cache_kib}; PRAGMA wal_autocheckpoint = 0; PRAGMA temp_store = MEMORY;",
    ))?;
    Ok(conn)
}

pub(super) fn run(conn: &Connection, sql: &str) -> Result<(), Error> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}

pub(in crate::db) fn execute(conn: &Connection, sql: &str, params: &[Value]) -> Result<u64, Error> {
    let mut statement = prepared(conn, sql)?;
    bind(&mut statement, params)?;
    Ok(statement.raw_execute()? as u64)
}

pub(in crate::db) fn query(
    conn: &Connection,
    table: &'static str,
    sql: &str,
    params: &[Value],
    bytes_max: usize,
) -> Result<Portion<Row>, Error> {
    let mut statement = prepared(conn, sql)?;
    bind(&mut statement, params)?;
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut found = Collector::new(bytes_max);
    while let Some(row) = rows.next()? {
        let values = (0..columns)
            .map(|column| value(table, row.get_ref(column)?))
            .collect::<Result<_, Error>>()?;
        let row = Row { table, values };
        let bytes = row.bytes();
        if !found.take(row, bytes) {
            break;
        }
    }
    Ok(found.done())
}

/// Prepares a statement. SQLite takes `$7` as a name, and its list of names is searched from the
/// beginning for each value of a long statement. `?7` is the number that we mean.
fn prepared<'c>(conn: &'c Connection, sql: &str) -> Result<CachedStatement<'c>, Error> {
    Ok(conn.prepare_cached(&sql.replace('$', "?"))?)
}

fn bind(statement: &mut Statement<'_>, params: &[Value]) -> Result<(), Error> {
    for index in 1..=statement.parameter_count() {
        match params.get(index - 1) {
            Some(Value::Null) => statement.raw_bind_parameter(index, rusqlite::types::Null)?,
            Some(Value::Int(value)) => statement.raw_bind_parameter(index, value)?,
            Some(Value::Text(value)) => statement.raw_bind_parameter(index, value)?,
            None => {
                return Err(Error::Unusable(format!(
                    "statement has no value for parameter {index}"
                )));
            }
        }
    }
    Ok(())
}

fn value(table: &'static str, value: ValueRef<'_>) -> Result<Value, Error> {
    match value {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(value) => Ok(Value::Int(value)),
        ValueRef::Text(text) => match std::str::from_utf8(text) {
            Ok(text) => Ok(Value::Text(text.to_owned())),
            Err(error) => Err(Error::corrupt(table, "?", error)),
        },
        other => Err(Error::corrupt(table, "?", format!("a value of type {}", other.data_type()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::StatementStatus;

    #[test]
    fn a_statement_is_prepared_once_for_all_values() {
        let folder = tempfile::tempdir().unwrap();
        let conn = connect(&folder.path().join("db"), READER_CACHE_KIB).unwrap();
        conn.execute_batch(
            "CREATE TABLE things (kind TEXT, name TEXT);
             CREATE INDEX offers ON things (name) WHERE kind = 'offer';",
        )
        .unwrap();
        let sql = "SELECT name FROM things WHERE kind = $1 AND name = $2";
        for kind in ["offer", "other", "offer"] {
            let params = [Value::Text(kind.into()), Value::Text("a".into())];
            query(&conn, "things", sql, &params, usize::MAX).unwrap();
        }
        let statement = prepared(&conn, sql).unwrap();
        assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
    }

    #[test]
    fn parameters_go_by_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let conn = connect(&folder.path().join("db"), READER_CACHE_KIB).unwrap();
        let params: Vec<Value> = (1..=11).map(Value::Int).collect();
        let found = query(&conn, "things", "SELECT $11, $2, $1, $2", &params, usize::MAX).unwrap();
        assert_eq!(found.rows[0].values, [11, 2, 1, 2].map(Value::Int));
        assert!(query(&conn, "things", "SELECT $2", &params[..1], usize::MAX).is_err());
    }
}
