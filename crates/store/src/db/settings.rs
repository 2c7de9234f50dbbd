//! Which database, and how hard to use it.

use std::fmt;
use std::path::PathBuf;

/// Which database holds the state.
#[derive(Clone)]
pub enum Target {
    /// A file in a folder of ours.
    Sqlite { file: PathBuf },
    /// A connection string of PostgreSQL.
    Postgres { url: String },
}

/// The connection string may hold a password.
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
    /// The keys that seal secrets; made at the first start. All servers on one database share its
    /// content.
    pub key_file: PathBuf,
    /// Threads that read at once (SQLite), or connections (PostgreSQL).
    pub connections: usize,
    /// Requests that may wait for a connection; more are refused.
    pub waiting_max: usize,
    /// Writes that SQLite commits together at most.
    pub batch_max: usize,
    /// Pages of SQLite's log after which they are moved into the database, beside the writer.
    pub log_pages: u32,
    /// Pages of SQLite's log at which the writer waits until they are moved. A start after a crash
    /// reads as many.
    pub log_pages_max: u32,
    /// Changes that are kept in memory for who follows them, where this process makes all of them.
    pub recent_changes_max: usize,
    /// How long PostgreSQL works on one statement at most. The change feed lags by as much.
    pub statement_timeout_ms: u64,
    /// How long a statement waits for a row that another transaction holds at most.
    pub lock_timeout_ms: u64,
    /// A file with the certificates that PostgreSQL's may stem from; `None`: those that the system
    /// trusts. Used when the connection string has `sslmode=require` or stricter; the certificate
    /// is always checked then.
    pub root_certificates: Option<PathBuf>,
    /// Only read, beside another process that may have the SQLite file open: for a backup of a
    /// running server.
    pub reads_beside: bool,
}

impl Settings {
    /// Settings that suit most.
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
