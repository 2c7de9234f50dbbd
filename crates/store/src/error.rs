//! Errors of the store, with one variant per decision that a caller can take.
//!
//! What the database said is part of the text instead of a source: whoever works in the background
//! logs only the text, and it is all that an operator learns.

use std::error::Error as StdError;
use std::iter::successors;

type Cause = Box<dyn StdError + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A row with this unique value exists.
    #[error("a row with the same unique value exists in {table}")]
    Duplicate { table: String },
    /// The row was changed since it was read. Read it again and decide again.
    #[error("{what} has changed since it was read")]
    Stale { what: String },
    /// A stored value that this program cannot have written, or that a newer one wrote.
    #[error("{table} {id} holds an impossible value: {why}")]
    Corrupt { table: &'static str, id: String, why: String },
    /// The changes after a position are no longer kept. Read the present state, then follow from
    /// the latest change.
    #[error("changes up to {oldest} are no longer kept")]
    Gone { oldest: i64 },
    /// Too much work is waiting for the database. Try again later.
    #[error("more than {limit} requests wait for the database")]
    Busy { limit: usize },
    /// There is no connection to the database at the moment. Nothing was done. Try again later.
    #[error("the database cannot be reached{}", .0.as_ref().map_or("; trying again shortly".into(), because))]
    Unreachable(Option<Cause>),
    /// There is no room on the disk of the database. Nothing was done. Try again later: somebody has
    /// to make room.
    #[error("the disk of the database is full{}", because(.0))]
    Full(Cause),
    /// A secret cannot be opened: its key is missing, or the sealed text was tampered with.
    #[error("a sealed secret cannot be opened: {0}")]
    Seal(String),
    /// The connection broke, or the database ended the work before it was done, because it is being
    /// stopped or because of a limit of time. Nothing was done. Try again later.
    #[error("the database did not finish the work{}", because(.0))]
    Interrupted(Cause),
    /// The connection broke during the commit, before the database answered. All of it was done or
    /// nothing: what goes with it outside the database must not be undone before the rows have been
    /// read again.
    #[error("the connection to the database broke during the commit{}", because(.0))]
    Uncertain(Cause),
    /// The database refused. Nothing was done.
    #[error("the database failed{}", because(.0))]
    Database(Cause),
    /// The database or its folder cannot be used as it is; the text says what to do.
    #[error("{0}")]
    Unusable(String),
}

impl Error {
    pub fn corrupt(table: &'static str, id: impl Into<String>, why: impl ToString) -> Self {
        Self::Corrupt { table, id: id.into(), why: why.to_string() }
    }

    pub(crate) fn database(error: impl StdError + Send + Sync + 'static) -> Self {
        Self::Database(Box::new(error))
    }

    /// Returns what callers may learn of it. What the database said may name its host and its user.
    pub const fn for_callers(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "too much waits for the database",
            Self::Unreachable(_) => "the database cannot be reached",
            Self::Full(_) => "the disk of the database is full",
            Self::Interrupted(_) => "the database did not finish the work",
            Self::Uncertain(_) => "the connection to the database broke",
            _ => "the server failed; its log says why",
        }
    }

    /// Returns whether the database cannot be asked at the moment, or went away while it was asked.
    pub const fn is_away(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Unreachable(_) | Self::Interrupted(_) | Self::Uncertain(_)
        )
    }

    /// Returns whether the same work may succeed later, because the database is away, busy, failing
    /// or without room. Other errors are about what was to be done.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Busy { .. }
            | Self::Unreachable(_)
            | Self::Full(_)
            | Self::Interrupted(_)
            | Self::Uncertain(_)
            | Self::Stale { .. }
            | Self::Database(_) => true,
            Self::Duplicate { .. }
            | Self::Corrupt { .. }
            | Self::Gone { .. }
            | Self::Seal(_)
            | Self::Unusable(_) => false,
        }
    }
}

/// Returns a cause and all that is behind it, in one line: databases add details in lines of their
/// own.
fn because(cause: &Cause) -> String {
    let first: &(dyn StdError + 'static) = &**cause;
    let all = successors(Some(first), |cause| (*cause).source());
    all.map(|cause| format!(": {cause}").replace('\n', "; ")).collect()
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::SqliteFailure(code, text)
                if matches!(
                    code.extended_code,
                    rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE
                        | rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                ) =>
            {
                let table = text
                    .as_deref()
                    .and_then(|text| text.rsplit(": ").next())
                    .and_then(|name| name.split('.').next());
                Self::Duplicate { table: table.unwrap_or("a table").to_owned() }
            }
            rusqlite::Error::SqliteFailure(code, _)
                if code.code == rusqlite::ErrorCode::DiskFull =>
            {
                Self::Full(Box::new(error))
            }
            _ => Self::database(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_the_database_said() {
        #[derive(Debug, thiserror::Error)]
        #[error("db error")]
        struct Driver(#[source] std::io::Error);
        let cause = || Box::new(Driver(std::io::Error::other("FATAL: no login\nHINT: none")));
        let said = |error: Error| error.to_string();
        let all = "db error: FATAL: no login; HINT: none";
        assert_eq!(Error::Database(cause()).for_callers(), "the server failed; its log says why");
        assert_eq!(said(Error::Database(cause())), format!("the database failed: {all}"));
        let away = Error::Unreachable(Some(cause()));
        assert_eq!(said(away), format!("the database cannot be reached: {all}"));
        let waiting = "the database cannot be reached; trying again shortly";
        assert_eq!(said(Error::Unreachable(None)), waiting);
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE t (x TEXT); PRAGMA max_page_count = 2;").unwrap();
        let full = conn.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap_err();
        let full = Error::from(full);
        assert!(matches!(full, Error::Full(_)) && full.may_pass(), "{full:?}");
    }
}
