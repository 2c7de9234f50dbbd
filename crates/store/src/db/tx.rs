//! Transactions, and every difference between the two databases that store functions need to know.

mod attempt;
mod revisions;
mod undo;

use super::threads::Shared;
use super::{postgres, sqlite};
use crate::feed::Change;
use crate::value::Portion;
use crate::{Error, Row, Value};
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::ids::{ResourceId, WorkspaceId};
use types::{KindName, World};
use undo::Undo;

/// More transactions than all servers together run at the same time.
const AT_ONCE_MAX: i64 = 200;

/// A transaction, on which store functions work.
///
/// After a statement fails, the transaction can only be undone, on both databases.
pub struct Tx<'c> {
    pub(super) conn: Conn<'c>,
    pub(super) shared: &'c Shared,
    /// A horizon of the feed that was known before this transaction began.
    horizon: i64,
    /// Revision of the next change, once one was recorded.
    next_revision: Option<i64>,
    recorded: Recorded,
    /// The names that an object refers to, if a statement has fetched them along the way.
    references: Option<(ResourceId, Named)>,
    /// The workspace that cannot be deleted before this transaction ends, if it holds one so.
    kept_workspace: Option<WorkspaceId>,
    pub(super) broken: bool,
    /// True if the transaction must be repeated, because the database or [`Tx::ask_for_repetition`]
    /// said so.
    pub(super) repeat: bool,
    /// True if there is a row that was not there yet when this transaction looked for it.
    pub(super) found_duplicate: bool,
}

/// Kinds and names of the objects that an object refers to.
pub(crate) type Named = BTreeSet<(KindName, String)>;

/// What depends on how a transaction ends. Of SQLite also what it changed in the feed, for followers,
/// who are told once it is durable.
#[derive(Default)]
pub(super) struct Recorded {
    /// Newest revision before the transaction, if known.
    pub(super) newest: Option<i64>,
    pub(super) changes: Vec<Change>,
    /// Highest change that was dropped from the feed.
    pub(super) trimmed_to: Option<i64>,
    /// True if revisions did not continue where they had been.
    pub(super) leapt: bool,
    /// What is done unless the transaction is kept.
    pub(super) undo: Undo,
}

pub(super) enum Conn<'c> {
    Sqlite(&'c rusqlite::Connection),
    Postgres(&'c mut postgres::Link),
}

impl<'c> Tx<'c> {
    pub(super) fn new(conn: Conn<'c>, shared: &'c Shared) -> Self {
        Self {
            conn,
            shared,
            horizon: shared.horizon.reached(),
            next_revision: None,
            recorded: Recorded::default(),
            references: None,
            kept_workspace: None,
            broken: false,
            repeat: false,
            found_duplicate: false,
        }
    }

    /// Makes a transaction that follows one whose newest revision is known.
    pub(super) fn after(conn: Conn<'c>, shared: &'c Shared, newest: Option<i64>) -> Self {
        let recorded = Recorded { newest, ..Recorded::default() };
        Self { recorded, ..Self::new(conn, shared) }
    }

    /// Returns what this transaction changed in the feed, with the newest revision after it.
    pub(super) fn into_recorded(self) -> Recorded {
        let newest = self.next_revision.map(|next| next - 1).or(self.recorded.newest);
        Recorded { newest: newest.filter(|_| !self.recorded.leapt), ..self.recorded }
    }

    /// Has something outside the database done if this transaction is not kept: undone, repeated, or
    /// not committed.
    pub fn if_undone(&mut self, act: impl FnOnce() + 'static) {
        self.recorded.undo.add(act);
    }

    /// Keeps a change for followers, where they are told from memory.
    pub(crate) fn note_change(&mut self, change: impl FnOnce() -> Change) {
        if matches!(self.conn, Conn::Sqlite(_)) {
            self.recorded.changes.push(change());
        }
    }

    pub(crate) fn note_trim(&mut self, upto: i64) {
        self.recorded.trimmed_to = Some(upto);
    }

    pub(crate) fn revisions_leapt(&mut self) {
        self.recorded.leapt = true;
    }

    pub fn world(&self) -> &World {
        &self.shared.world
    }

    pub(crate) fn shared(&self) -> &'c Shared {
        self.shared
    }

    /// Runs a statement and returns the number of rows it touched.
    pub(crate) fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => sqlite::execute(conn, sql, params),
            Conn::Postgres(link) => link.execute(sql, params),
        };
        self.note(result)
    }

    pub(crate) fn query(
        &mut self,
        table: &'static str,
        sql: &str,
        params: &[Value],
    ) -> Result<Vec<Row>, Error> {
        Ok(self.query_within(table, sql, params, usize::MAX)?.rows)
    }

    /// Returns the first rows that a statement finds, as many as have `bytes_max` in all, but at
    /// least one.
    pub(crate) fn query_within(
        &mut self,
        table: &'static str,
        sql: &str,
        params: &[Value],
        bytes_max: usize,
    ) -> Result<Portion<Row>, Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => sqlite::query(conn, table, sql, params, bytes_max),
            Conn::Postgres(link) => link.query(table, sql, params, bytes_max),
        };
        self.note(result)
    }

    /// Runs several statements without parameters; for migrations only.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => conn.execute_batch(sql).map_err(Error::from),
            Conn::Postgres(link) => link.define(sql),
        };
        self.note(result)
    }

    /// Returns the first row that a statement finds, if any.
    pub(crate) fn find(
        &mut self,
        table: &'static str,
        sql: &str,
        params: &[Value],
    ) -> Result<Option<Row>, Error> {
        Ok(self.query(table, sql, params)?.into_iter().next())
    }

    fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.broken |= result.is_err();
        if matches!(result, Err(Error::Duplicate { .. })) {
            self.note_duplicate();
        }
        result
    }

    /// Notes that there is a row now which this transaction did not find when it looked first, because
    /// another one has added it since. If this one fails, it is repeated, and finds it.
    pub fn note_duplicate(&mut self) {
        self.found_duplicate = true;
    }

    /// Returns the error that a row is there already, for a statement that adds nothing then.
    pub(crate) fn duplicate(&mut self, table: &str) -> Error {
        self.note_duplicate();
        Error::Duplicate { table: table.to_owned() }
    }

    /// Requests that this transaction be repeated from the start. Returns the error to leave it
    /// with.
    pub(crate) fn ask_for_repetition(&mut self) -> Error {
        self.repeat = true;
        Error::Stale { what: "the order of the change feed".into() }
    }

    /// Makes a `SELECT` lock the rows it reads. PostgreSQL must be told to hold them; SQLite has
    /// one writer, so they stay as they are anyway.
    pub(crate) fn locking<'s>(&self, select: &'s str) -> Cow<'s, str> {
        match self.conn {
            Conn::Sqlite(_) => Cow::Borrowed(select),
            Conn::Postgres(_) => Cow::Owned(format!("{select} FOR UPDATE")),
        }
    }

    /// Locks rows like [`Tx::locking`], but skips those that another transaction holds.
    pub(crate) fn locking_free<'s>(&self, select: &'s str) -> Cow<'s, str> {
        match self.conn {
            Conn::Sqlite(_) => Cow::Borrowed(select),
            Conn::Postgres(_) => Cow::Owned(format!("{select} FOR UPDATE SKIP LOCKED")),
        }
    }

    /// Makes a `SELECT` keep others from deleting the rows it reads, and from locking them with
    /// [`Tx::locking`]. Several transactions may do so at once.
    pub(crate) fn keeping<'s>(&self, select: &'s str) -> Cow<'s, str> {
        match self.conn {
            Conn::Sqlite(_) => Cow::Borrowed(select),
            Conn::Postgres(_) => Cow::Owned(format!("{select} FOR KEY SHARE")),
        }
    }

    /// Makes others who ask for the same name wait until this transaction ends, where there is no
    /// row to lock. SQLite has one writer, so nobody has to wait.
    pub(crate) fn hold(&mut self, name: &str) -> Result<(), Error> {
        if matches!(self.conn, Conn::Sqlite(_)) {
            return Ok(());
        }
        let sql = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
        self.execute(sql, &[name.into()]).map(drop)
    }

    /// Counts what has a limit. Close to it, whoever counts the same waits for those who have done so
    /// and may add one, until their transactions end: two cannot both take the last place. SQLite has
    /// one writer.
    pub(crate) fn count_towards(
        &mut self,
        what: &str,
        limit: i64,
        count: impl Fn(&mut Self) -> Result<i64, Error>,
    ) -> Result<i64, Error> {
        let counted = count(self)?;
        let is_close = (limit.saturating_sub(AT_ONCE_MAX)..limit).contains(&counted);
        if self.is_sqlite() || !is_close {
            return Ok(counted);
        }
        self.hold(what)?;
        count(self)
    }

    /// Returns true on SQLite: some schema steps concern how it stores tables.
    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.conn, Conn::Sqlite(_))
    }

    /// Returns true on PostgreSQL, where each statement is a round trip, which costs more than the
    /// statement itself. SQLite runs in this process, where several simple statements are faster
    /// than one clever statement.
    pub(crate) fn prefers_one_statement(&self) -> bool {
        matches!(self.conn, Conn::Postgres(_))
    }

    /// Keeps the names that an object refers to, until somebody asks.
    pub(crate) fn remember(&mut self, of: &ResourceId, named: Named) {
        self.references = Some((of.clone(), named));
    }

    pub(crate) fn remembered(&mut self, of: &ResourceId) -> Option<Named> {
        self.references.take().filter(|(id, _)| id == of).map(|(_, named)| named)
    }

    /// Notes a workspace that this transaction keeps, so that it need not be asked for again.
    pub(crate) fn note_kept(&mut self, workspace: &WorkspaceId) {
        self.kept_workspace = Some(workspace.clone());
    }

    pub(crate) fn keeps(&self, workspace: &WorkspaceId) -> bool {
        self.kept_workspace.as_ref() == Some(workspace)
    }

    /// Checks references between tables at the end of the transaction instead of with each
    /// statement.
    pub(crate) fn defer_references(&mut self) -> Result<(), Error> {
        let result = match &mut self.conn {
            Conn::Sqlite(conn) => {
                conn.execute_batch("PRAGMA defer_foreign_keys = ON").map_err(Error::from)
            }
            Conn::Postgres(link) => link.batch("SET CONSTRAINTS ALL DEFERRED"),
        };
        self.note(result)
    }

    /// Returns the size of the database on its disk, in bytes.
    pub fn size(&mut self) -> Result<u64, Error> {
        let sql = match self.conn {
            Conn::Sqlite(_) => {
                "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            }
            Conn::Postgres(_) => "SELECT pg_database_size(current_database())",
        };
        let row = self.find("the database", sql, &[])?;
        let missing = || Error::corrupt("the database", "its size", "no row");
        let bytes = row.ok_or_else(missing)?.int(0)?;
        u64::try_from(bytes).map_err(|error| Error::corrupt("the database", "its size", error))
    }

    /// Returns every column of every table in order, with its position in the primary key or 0.
    pub(crate) fn columns(&mut self) -> Result<Vec<(String, String, i64)>, Error> {
        let sql = match self.conn {
            Conn::Sqlite(_) => {
                "SELECT t.name, c.name, c.pk FROM sqlite_master t, pragma_table_info(t.name) c
                 WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite~_%' ESCAPE '~' ORDER BY t.name, c.cid"
            }
            Conn::Postgres(_) => {
                "SELECT c.table_name::text, c.column_name::text, COALESCE(k.ordinal_position, 0)::bigint
                 FROM information_schema.columns c
                 LEFT JOIN information_schema.table_constraints t
                     ON t.table_schema = c.table_schema AND t.table_name = c.table_name
                     AND t.constraint_type = 'PRIMARY KEY'
                 LEFT JOIN information_schema.key_column_usage k
                     ON k.constraint_schema = t.constraint_schema AND k.constraint_name = t.constraint_name
                     AND k.table_name = c.table_name AND k.column_name = c.column_name
                 WHERE c.table_schema = current_schema() ORDER BY c.table_name, c.ordinal_position"
            }
        };
        self.query("columns", sql, &[])?
            .iter()
            .map(|row| Ok((row.text(0)?, row.text(1)?, row.int(2)?)))
            .collect()
    }
}
