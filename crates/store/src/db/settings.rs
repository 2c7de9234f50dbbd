//! Settings: which database to use, and how intensively.

use std::fmt;
use std::path::PathBuf;

/// Which database holds the state.
#[derive(Clone)]
pub enum Target {
    /// A SQLite file in a folder that belongs to the server.
    Sqlite { file: PathBuf },
    /// A PostgreSQL connection string.
    Postgres { url: String },
}

/// Omits the connection string, which may contain a password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { file } => f.debug_struct("Sqlite").field("file", file).finish(),
            Self::Postgres { .. } => f.write_str("Postgres"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub target: Target,
    /// File with the keys that seal secrets, created at the first start. All servers on one
    /// database use the same content.
    pub key_file: PathBuf,
    /// Number of reader threads (SQLite) or connections (PostgreSQL).
    pub connections: usize,
    /// Most requests that may wait for a connection; further ones are refused.
    pub waiting_max: usize,
    /// Most writes that SQLite commits together.
    pub batch_max: usize,
    /// Size of SQLite's log, in pages, at which a background thread starts to move it into the
    /// database.
    pub log_pages: u32,
    /// Size of SQLite's log, in pages, at which the writer waits until it has been moved. A start
    /// after a crash reads up to this many pages.
    pub log_pages_max: u32,
    /// Most changes kept in memory for followers, where this process makes all of them.
    pub recent_changes_max: usize,
    /// Longest time that PostgreSQL may work on one statement. The change feed may lag by as much.
    pub statement_timeout_ms: u64,
    /// Longest wait of a statement for a row that another transaction holds.
    pub lock_timeout_ms: u64,
    /// File with the certificate authorities that are trusted for PostgreSQL; `None` means those of
    /// the system. Used if the connection string has `sslmode=require` or stricter; then the
    /// certificate is always checked.
    pub root_certificates: Option<PathBuf>,
    /// True to only read beside a running server, as for its backup: a SQLite file may be open in
    /// another process, and the schema must be this program's, since it is not changed.
    pub reads_beside: bool,
}

impl Settings {
    /// Returns settings that suit most installations.
    pub fn new(target: Target, key_file: impl Into<PathBuf>) -> Self {
        Self {
            target,
            key_file: key_file.into(),
            connections: 8,
            waiting_max: 4096,
            batch_max: 256,
            log_pages: 8_000,
            log_pages_max: 24_000,
            recent_changes_max: 4096,
            statement_timeout_ms: 30_000,
            lock_timeout_ms: 10_000,
            root_certificates: None,
            reads_beside: false,
        }
    }
}
