//! Connections, transactions and the threads they run on.

mod sqlite;

use crate::{Error, Row, Value};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use types::World;

/// Which database holds the state.
#[derive(Debug, Clone)]
pub enum Target {
    /// A file in a folder of ours.
    Sqlite { file: PathBuf },
    /// A connection string of PostgreSQL.
    Postgres { url: String },
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub target: Target,
    /// Threads that read at once (SQLite), or connections (PostgreSQL).
    pub connections: usize,
    /// Requests that may wait for a connection; more are refused.
    pub waiting_max: usize,
    /// Writes that SQLite commits together at most.
    pub batch_max: usize,
}

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    engine: Arc<sqlite::Engine>,
    world: World,
    committed: watch::Sender<i64>,
}

impl Store {
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Opens the database, brings its schema up to date and starts the threads.
    pub async fn open(settings: Settings, world: World) -> Result<Self, Error> {
        let committed = watch::Sender::new(0);
        let engine = Arc::new(sqlite::Engine::open(&settings, &world, committed.clone())?);
        Ok(Self { engine, world, committed })
    }

    /// Runs `work` in a transaction and answers when it is durable. An error of `work` undoes all of it.
    /// `work` may run more than once when the database asks for a repetition.
    pub async fn write<T, E>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        self.engine.submit_write(Box::new(Work { work, answer: Some(answer), done: None }))?;
        received(result.await)
    }

    /// Runs `work` on one consistent view of the database.
    pub async fn read<T, E>(&self, work: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (answer, result) = oneshot::channel();
        self.engine.submit_read(Box::new(Work { work, answer: Some(answer), done: None }))?;
        received(result.await)
    }

    /// Wakes whoever follows the change feed after each commit of this process.
    pub fn commits(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }
}

fn received<T, E: From<Error>>(result: Result<Result<T, E>, oneshot::error::RecvError>) -> Result<T, E> {
    result.unwrap_or_else(|_| Err(Error::Unusable("the database thread has ended".into()).into()))
}

/// A transaction: what store functions work on.
pub struct Tx<'c> {
    conn: Conn<'c>,
    world: &'c World,
    /// Changes recorded so far, to number them within the transaction.
    pub(crate) changes: i64,
}

enum Conn<'c> {
    Sqlite(&'c rusqlite::Connection),
}

impl Tx<'_> {
    pub fn world(&self) -> &World {
        self.world
    }

    /// Runs a statement and says how many rows it touched. `table` is named in errors.
    pub(crate) fn execute(&mut self, table: &'static str, sql: &str, params: &[Value]) -> Result<u64, Error> {
        match &mut self.conn {
            Conn::Sqlite(conn) => sqlite::execute(conn, table, sql, params),
        }
    }

    pub(crate) fn query(&mut self, table: &'static str, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        match &mut self.conn {
            Conn::Sqlite(conn) => sqlite::query(conn, table, sql, params),
        }
    }

    /// Runs several statements without values: migrations only.
    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        match &mut self.conn {
            Conn::Sqlite(conn) => Ok(conn.execute_batch(sql)?),
        }
    }

    /// The one row that a statement finds, if any.
    pub(crate) fn find(&mut self, table: &'static str, sql: &str, params: &[Value]) -> Result<Option<Row>, Error> {
        Ok(self.query(table, sql, params)?.into_iter().next())
    }
}

/// A closure with its answer, seen by the threads without its types.
trait Job: Send {
    /// Runs inside a transaction; `false` asks to undo it.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Sends the result, once it is durable.
    fn answer(self: Box<Self>);
    /// Sends an error in place of the result.
    fn fail(self: Box<Self>, error: Error);
}

struct Work<F, T, E> {
    work: F,
    answer: Option<oneshot::Sender<Result<T, E>>>,
    done: Option<Result<T, E>>,
}

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        let result = (self.work)(tx);
        let keep = result.is_ok();
        self.done = Some(result);
        keep
    }

    fn answer(mut self: Box<Self>) {
        if let (Some(answer), Some(done)) = (self.answer.take(), self.done.take()) {
            // The caller may have gone away; the work is done all the same.
            let _ = answer.send(done);
        }
    }

    fn fail(mut self: Box<Self>, error: Error) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(Err(error.into()));
        }
    }
}
