//! SQLite: one writer thread that commits waiting writes together, and a few readers.

mod checkpoint;
mod connection;
mod writer;

pub(super) use connection::{execute, query};

use super::access::Access;
use super::settings::Settings;
use super::threads::{Shared, spawn};
use super::tx::{Conn, Tx};
use super::work::Job;
use crate::{Error, migrations};
use checkpoint::Checkpoints;
use connection::{READER_CACHE_KIB, WRITER_CACHE_KIB, connect, run};
use crossbeam_channel::TrySendError;
use rusqlite::Connection;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use writer::{Inbox, Writer};

type Queue = crossbeam_channel::Sender<Job>;

pub(super) struct Engine {
    writes: Queue,
    reads: Queue,
    waiting_max: usize,
    /// Lock held for the lifetime of the engine: a second process would not notice our commits.
    /// `None` if this process only reads.
    _lock: Option<File>,
}

impl Engine {
    pub(super) fn open(file: &Path, settings: &Settings, shared: &Shared) -> Result<Self, Error> {
        let (writes, inbox) = crossbeam_channel::bounded(settings.waiting_max);
        let lock = if settings.reads_beside {
            must_exist(file)?;
            let reader = connect(file, READER_CACHE_KIB)?;
            migrations::require_current(&mut Tx::new(Conn::Sqlite(&reader), shared))?;
            None
        } else {
            let lock = lock(file)?;
            let mut writer = connect(file, WRITER_CACHE_KIB)?;
            migrate(&writer, shared)?;
            let checkpoints = Checkpoints::start(&mut writer, file, settings)?;
            let mut writer = Writer::new(writer, shared.clone(), checkpoints, settings.batch_max);
            spawn("store-writer", move || writer.serve(&inbox))?;
            Some(lock)
        };
        let (reads, inbox) = crossbeam_channel::bounded(settings.waiting_max);
        for _ in 0..settings.connections.max(1) {
            let (reader, shared, inbox) =
                (connect(file, READER_CACHE_KIB)?, shared.clone(), inbox.clone());
            spawn("store-reader", move || read_loop(&reader, &shared, &inbox))?;
        }
        Ok(Self { writes, reads, waiting_max: settings.waiting_max, _lock: lock })
    }

    pub(super) fn submit(&self, access: Access, job: Job) -> Result<(), Error> {
        let queue = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        queue.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => Error::Busy { limit: self.waiting_max },
            TrySendError::Disconnected(_) => {
                Error::Unusable("this process only reads the database".into())
            }
        })
    }
}

fn must_exist(file: &Path) -> Result<(), Error> {
    if file.is_file() {
        return Ok(());
    }
    Err(Error::Unusable(format!("there is no database {}: check the data folder", file.display())))
}

/// Makes sure that the folder can be written to and that no other process has the database open.
fn lock(file: &Path) -> Result<File, Error> {
    let folder =
        file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unusable = |error: std::io::Error| {
        Error::Unusable(format!(
            "the folder {} cannot be written ({error}): create it and give it to the user that runs this program, \
             or choose another data folder",
            folder.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(unusable)?;
    let path = file.with_extension("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(unusable)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Error::Unusable(format!(
            "another process has the database {} open: stop it, or choose another data folder",
            file.display()
        ))),
        Err(TryLockError::Error(error)) => Err(unusable(error)),
    }
}

fn migrate(writer: &Connection, shared: &Shared) -> Result<(), Error> {
    run(writer, "BEGIN IMMEDIATE")?;
    let done = migrations::run(&mut Tx::new(Conn::Sqlite(writer), shared));
    run(writer, if done.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    done
}

fn read_loop(conn: &Connection, shared: &Shared, inbox: &Inbox) {
    while let Ok(mut job) = inbox.recv() {
        if let Err(error) = run(conn, "BEGIN") {
            job.fail(error);
            continue;
        }
        job.run(&mut Tx::new(Conn::Sqlite(conn), shared));
        if let Err(error) = run(conn, "ROLLBACK") {
            tracing::error!(%error, "a read could not be ended");
        }
        job.answer();
    }
}
