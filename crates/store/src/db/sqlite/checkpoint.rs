//! Moving SQLite's log into the database.
//!
//! SQLite does this inside the commit that fills the log, so everyone who waits for that commit
//! waits for thousands of pages. Here a thread with its own connection moves them while the writer
//! continues. The few pages that were written meanwhile are moved by the writer, which empties the
//! log, so that SQLite starts over at its beginning.
//!
//! ```text
//! Idle ──log_pages──▶ Moving ──moved──▶ Moved ──writer moves the rest──▶ Idle
//! ```
//!
//! A reader with an old snapshot keeps the log from starting over. The log grows until that reader
//! ends, as it also would without this module.

use super::connection::{READER_CACHE_KIB, connect};
use crate::db::threads::spawn;
use crate::{Error, Settings};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use rusqlite::wal::CheckpointMode;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Moving,
    Moved,
    /// The writer has ended.
    Closed,
}

struct Turn {
    phase: Mutex<Phase>,
    changed: Condvar,
}

/// The writer's side of the checkpoints.
pub(super) struct Checkpoints {
    turn: Arc<Turn>,
    /// Number of pages in the log after the last commit.
    log: Arc<AtomicU32>,
    log_pages: u32,
    log_pages_max: u32,
}

impl Checkpoints {
    /// Takes over what SQLite would do at the end of the writer's commits.
    pub(super) fn start(
        writer: &mut Connection,
        file: &Path,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let turn = Arc::new(Turn { phase: Mutex::new(Phase::Idle), changed: Condvar::new() });
        let log = Arc::new(AtomicU32::new(0));
        let noted = Arc::clone(&log);
        writer.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            noted.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        let (mover, moving) = (connect(file, READER_CACHE_KIB)?, Arc::clone(&turn));
        spawn("store-checkpoint", move || move_pages(&mover, &moving))?;
        Ok(Self { turn, log, log_pages: settings.log_pages, log_pages_max: settings.log_pages_max })
    }

    /// Takes the writer's turn. To be called after each commit, once everyone who waited for it has
    /// an answer.
    pub(super) fn after_commit(&self, writer: &Connection) {
        let pages = self.log.load(Ordering::Relaxed);
        let mut phase = self.turn.phase.lock();
        if *phase == Phase::Idle && pages >= self.log_pages {
            self.enter(&mut phase, Phase::Moving);
        }
        while *phase == Phase::Moving && pages >= self.log_pages_max {
            self.turn.changed.wait(&mut phase);
        }
        if *phase == Phase::Moved {
            checkpoint(writer);
            self.enter(&mut phase, Phase::Idle);
        }
    }

    fn enter(&self, phase: &mut Phase, next: Phase) {
        *phase = next;
        self.turn.changed.notify_all();
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.enter(&mut self.turn.phase.lock(), Phase::Closed);
    }
}

fn move_pages(conn: &Connection, turn: &Turn) {
    loop {
        let mut phase = turn.phase.lock();
        while matches!(*phase, Phase::Idle | Phase::Moved) {
            turn.changed.wait(&mut phase);
        }
        if *phase == Phase::Closed {
            return;
        }
        drop(phase);
        checkpoint(conn);
        let mut phase = turn.phase.lock();
        if *phase == Phase::Moving {
            *phase = Phase::Moved;
            turn.changed.notify_all();
        }
    }
}

/// Moves the pages that no reader needs any more; the rest is left for the next time.
fn checkpoint(conn: &Connection) {
    if let Err(error) = conn.wal_checkpoint_v2(rusqlite::DEFAULT_NAME, CheckpointMode::PASSIVE) {
        tracing::warn!(%error, "SQLite's log could not be moved into the database");
    }
}
