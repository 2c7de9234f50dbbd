//! Transactions, and every difference between the two databases that store functions must know of.

use super::{Shared, sqlite};
use crate::{Error, Row, Value};
use std::borrow::Cow;
use types::World;

/// A transaction: what store functions work on.
///
/// After an error of a statement the transaction can only be undone, on both databases.
pub struct Tx<'c> {
    pub(super) conn: Conn<'c>,
    pub(super) shared: &'c Shared,
    /// The revision of the next change, once one was recorded.
    next_revision: Option<i64>,
    pub(super) broken: bool,
    /// The database, or [`Tx::ask_for_repetition`], wants this transaction to be done again.
    pub(super) repeat: bool,
}

pub(super) enum Conn<'c> {
    Sqlite(&'c rusqlite::Connection),
}

/// Low bits of a revision on PostgreSQL: changes that one transaction can record.
const CHANGE_BITS: u32 = 20;

impl<'c> Tx<'c> {
    pub(super) fn new(conn: Conn<'c>, shared: &'c Shared) -> Self {
        Self { conn, shared, next_revision: None, broken: false, repeat: false }
    }

    pub fn world(&self) -> &World {
        &self.shared.world
    }

    pub(crate) fn shared(&self) -> &'c Shared {
        self.shared
    }

    /// Runs a statement and says how many rows it touched. `table` is named in errors.
    pub(crate) fn execute(&mut self, table: &'static str, sql: &str, params: &[Value]) -> Result<u64, Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => sqlite::execute(conn, table, sql, params),
        };
        self.note(result)
    }

    pub(crate) fn query(&mut self, table: &'static str, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => sqlite::query(conn, table, sql, params),
        };
        self.note(result)
    }

    /// Runs several statements without values: migrations only.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => conn.execute_batch(sql).map_err(Error::from),
        };
        self.note(result)
    }

    /// The one row that a statement finds, if any.
    pub(crate) fn find(&mut self, table: &'static str, sql: &str, params: &[Value]) -> Result<Option<Row>, Error> {
        Ok(self.query(table, sql, params)?.into_iter().next())
    }

    fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.broken |= result.is_err();
        result
    }

    /// The error to return when this transaction must be done again from the start.
    pub(crate) fn ask_for_repetition(&mut self) -> Error {
        self.repeat = true;
        Error::Stale { what: "the order of the change feed".into() }
    }

    /// SQLite has one writer, so a row that was read stays as it is; PostgreSQL must be asked to hold it.
    pub(crate) fn locking<'s>(&self, select: &'s str) -> Cow<'s, str> {
        match self.conn {
            Conn::Sqlite(_) => Cow::Borrowed(select),
        }
    }

    /// The revision for the next change of this transaction; see the module `feed`.
    pub(crate) fn next_revision(&mut self) -> Result<i64, Error> {
        let revision = match self.next_revision {
            Some(revision) => revision,
            None => self.first_revision()?,
        };
        self.next_revision = Some(revision + 1);
        Ok(revision)
    }

    fn first_revision(&mut self) -> Result<i64, Error> {
        match self.conn {
            Conn::Sqlite(_) => Ok(crate::feed::highest(self)? + 1),
        }
    }

    /// Changes below it are all that will ever be there; see the module `feed`.
    pub(crate) fn horizon(&mut self) -> Result<i64, Error> {
        match self.conn {
            Conn::Sqlite(_) => Ok(i64::MAX),
        }
    }
}
