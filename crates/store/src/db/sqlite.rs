//! SQLite: one writer thread that commits waiting writes together, and a few readers.

use super::{Conn, Job, Settings, Target, Tx};
use crate::{Error, Row, Value, migrations};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::Duration;
use tokio::sync::watch;
use types::World;

type Queue = crossbeam_channel::Sender<Box<dyn Job>>;
type Inbox = crossbeam_channel::Receiver<Box<dyn Job>>;

pub(super) struct Engine {
    writes: Queue,
    reads: Queue,
    waiting_max: usize,
}

impl Engine {
    pub(super) fn open(settings: &Settings, world: &World, committed: watch::Sender<i64>) -> Result<Self, Error> {
        let Target::Sqlite { file } = &settings.target else {
            return Err(Error::Unusable("not a SQLite target".into()));
        };
        let writer = connect(file)?;
        migrations::run(&mut Tx { conn: Conn::Sqlite(&writer), world, changes: 0 })?;
        let (writes, inbox) = crossbeam_channel::bounded(settings.waiting_max);
        let (world_, batch_max) = (world.clone(), settings.batch_max);
        spawn("store-writer", move || write_loop(&writer, &world_, &inbox, batch_max, &committed))?;
        let (reads, inbox) = crossbeam_channel::bounded(settings.waiting_max);
        for _ in 0..settings.connections.max(1) {
            let (reader, world, inbox) = (connect(file)?, world.clone(), inbox.clone());
            spawn("store-reader", move || read_loop(&reader, &world, &inbox))?;
        }
        Ok(Self { writes, reads, waiting_max: settings.waiting_max })
    }

    pub(super) fn submit_write(&self, job: Box<dyn Job>) -> Result<(), Error> {
        self.submit(&self.writes, job)
    }

    pub(super) fn submit_read(&self, job: Box<dyn Job>) -> Result<(), Error> {
        self.submit(&self.reads, job)
    }

    fn submit(&self, queue: &Queue, job: Box<dyn Job>) -> Result<(), Error> {
        queue.try_send(job).map_err(|_| Error::Busy { limit: self.waiting_max })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    thread::Builder::new().name(name.into()).spawn(run).map(drop).map_err(Error::database)
}

fn connect(file: &Path) -> Result<Connection, Error> {
    let conn = Connection::open(file)?;
    conn.busy_timeout(Duration::from_secs(10))?;
    conn.set_prepared_statement_cache_capacity(256);
    // FULL: a commit in WAL mode has reached the disk before it is answered.
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;",
    )?;
    Ok(conn)
}

/// Takes what waits, runs each in a savepoint of one transaction, commits once, then answers all.
fn write_loop(conn: &Connection, world: &World, inbox: &Inbox, batch_max: usize, committed: &watch::Sender<i64>) {
    while let Ok(first) = inbox.recv() {
        let mut batch = vec![first];
        batch.extend(inbox.try_iter().take(batch_max.saturating_sub(1)));
        match write_batch(conn, world, &mut batch) {
            Ok(()) => {
                committed.send_modify(|count| *count += 1);
                batch.into_iter().for_each(Job::answer);
            }
            Err(error) => {
                // Ignored: without a transaction open there is nothing to undo.
                let _ = conn.execute_batch("ROLLBACK");
                tracing::error!(%error, writes = batch.len(), "a commit failed");
                batch.into_iter().for_each(|job| job.fail(Error::Unusable(format!("the commit failed: {error}"))));
            }
        }
    }
}

fn write_batch(conn: &Connection, world: &World, batch: &mut [Box<dyn Job>]) -> Result<(), Error> {
    conn.execute_batch("BEGIN IMMEDIATE")?;
    for job in batch {
        run(conn, "SAVEPOINT job")?;
        let mut tx = Tx { conn: Conn::Sqlite(conn), world, changes: 0 };
        // A panic must not take the writer, and with it every later write, down.
        let keep = catch_unwind(AssertUnwindSafe(|| job.run(&mut tx))).unwrap_or(false);
        if !keep {
            run(conn, "ROLLBACK TO job")?;
        }
        run(conn, "RELEASE job")?;
    }
    run(conn, "COMMIT")
}

fn read_loop(conn: &Connection, world: &World, inbox: &Inbox) {
    while let Ok(mut job) = inbox.recv() {
        if let Err(error) = run(conn, "BEGIN") {
            job.fail(error);
            continue;
        }
        let mut tx = Tx { conn: Conn::Sqlite(conn), world, changes: 0 };
        let _ = catch_unwind(AssertUnwindSafe(|| job.run(&mut tx)));
        if let Err(error) = run(conn, "ROLLBACK") {
            tracing::error!(%error, "a read could not be ended");
        }
        job.answer();
    }
}

fn run(conn: &Connection, sql: &str) -> Result<(), Error> {
    conn.prepare_cached(sql)?.execute([])?;
    Ok(())
}

pub(super) fn execute(conn: &Connection, _table: &'static str, sql: &str, params: &[Value]) -> Result<u64, Error> {
    let mut statement = conn.prepare_cached(sql)?;
    bind(&mut statement, params)?;
    Ok(statement.raw_execute()? as u64)
}

pub(super) fn query(conn: &Connection, table: &'static str, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
    let mut statement = conn.prepare_cached(sql)?;
    bind(&mut statement, params)?;
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| value(table, row.get_ref(column)?)).collect::<Result<_, Error>>()?;
        found.push(Row { table, values });
    }
    Ok(found)
}

/// SQLite takes `$7` for a name and numbers it by appearance; we mean the number.
fn bind(statement: &mut Statement<'_>, params: &[Value]) -> Result<(), Error> {
    for index in 1..=statement.parameter_count() {
        let number = statement.parameter_name(index).and_then(|name| name.get(1..)?.parse::<usize>().ok());
        let value = number.and_then(|number| params.get(number.checked_sub(1)?));
        match value {
            Some(Value::Null) => statement.raw_bind_parameter(index, rusqlite::types::Null)?,
            Some(Value::Int(value)) => statement.raw_bind_parameter(index, value)?,
            Some(Value::Text(value)) => statement.raw_bind_parameter(index, value)?,
            None => return Err(Error::Unusable(format!("statement has no value for parameter {index}"))),
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
