//! Connections to the file of SQLite.

use crate::Error;
use rusqlite::Connection;
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
