//! Processes started on request: their table, their life cycle and their output.
//!
//! ```text
//!            start                     exit 0, or nothing is to be restarted, or it was asked to stop
//!   (none) ────────▶ Running{pid} ──────────────────────────────────────────────────────────────▶ Ended
//!                        ▲   │ failure with restarts left                                           ▲
//!                        │   ▼                                                                      │
//!                     Restarting ─────────────────── asked to stop ─────────────────────────────────┘
//! ```
//!
//! Only `supervise` changes the phase of a process. Requests read it, wait for it, and send it
//! signals. A process has ended when its own main process has, and its log then contains everything
//! that it wrote. A child that it left behind may keep its output open; this blocks nobody, and
//! what such a child writes still goes to the log.
//!
//! **Streams can be resumed.** Each piece of a stream in newline-delimited JSON has an `offset`,
//! the position in the log after it. A stream that was interrupted anywhere is resumed with
//! `GET /process/{id}/logs/stream?offset=N`, where `N` is the `offset` of the last complete line,
//! and `Accept: application/x-ndjson`: nothing is lost or repeated. Bytes that are not UTF-8 become
//! U+FFFD there; with `encoding=base64` the data is exact. The plain text form also takes `offset`.

mod ask;
mod byte_strings;
mod handover;
mod input;
mod limits;
mod log;
mod pipe;
mod plain;
mod process;
mod readers;
mod routes;
mod spawn;
mod start;
mod stream;
mod supervise;
mod table;
mod view;
mod waiters;

pub(crate) use ask::Ask;
pub(crate) use ask::Plan;
pub(crate) use handover::HandedOverProcess;
pub(crate) use pipe::{drain, read_once};
pub(crate) use process::{Asked, Process};
pub(crate) use routes::{
    Waited, close_input, execute_within, kill, list, logs, run, show, stop, stream_logs, wait,
    write_input,
};
pub(crate) use spawn::{Run, spawn};

use crate::http::Error;
use crate::reaper::End;
use crate::settings::Settings;
use limits::Limits;
use log::{Keep, Log};
use parking_lot::Mutex;
use process::Phase;
use readers::Readers;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::Table;
use types::Timestamp;
use waiters::Waiters;

const RUNNING_MAX: usize = 4096;

pub(crate) struct Processes {
    table: Mutex<Table>,
    /// Where output is kept.
    keep: Keep,
    limits: Limits,
    /// Bytes of output since the limit for all of it was enforced.
    since_reclaim: AtomicU64,
    waiters: Waiters,
    readers: Readers,
}

impl Processes {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (keep, limits) = limits::by(settings);
        Self::with(keep, limits)
    }

    fn with(keep: Keep, limits: Limits) -> Self {
        Self {
            table: Mutex::default(),
            keep,
            limits,
            since_reclaim: AtomicU64::new(0),
            waiters: Waiters::default(),
            readers: Readers::default(),
        }
    }

    /// Finds a process by pid or name. Of several, the newest is returned.
    pub(crate) fn get(&self, identifier: &str) -> Result<Arc<Process>, Error> {
        let table = self.table.lock();
        let pid = crate::network::process_number(identifier);
        let newest = |is_meant: &dyn Fn(&Process) -> bool| {
            table.all().rev().find(|process| is_meant(process))
        };
        let found = newest(&|process| pid == Some(process.pid()))
            .or_else(|| newest(&|process| process.plan.name == identifier));
        found.cloned().ok_or_else(|| Error::NotFound(format!("there is no process '{identifier}'")))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Process>> {
        self.table.lock().all().cloned().collect()
    }

    /// Counts the running processes that keep the sandbox awake.
    pub(crate) fn keeping_alive(&self) -> usize {
        self.table.lock().running().filter(|process| process.plan.keep_alive).count()
    }

    fn end(&self, process: &Process, end: End, at: Timestamp) {
        process.change(|state| state.phase = Phase::Ended { end, at });
        self.table.lock().end(process);
    }

    /// Asks all running processes to end.
    pub(crate) fn ask_all(&self, asked: Asked) {
        for process in self.all() {
            // A process that has ended needs no signal.
            let _ = process.signal(asked);
        }
    }

    pub(crate) async fn all_ended(&self) {
        for process in self.all() {
            process.ended().await;
        }
    }

    /// Counts output of any process, and now and then drops some of it.
    fn count_output(&self, bytes: usize) {
        let bytes = bytes as u64;
        if self.since_reclaim.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.limits.reclaim {
            self.since_reclaim.store(0, Ordering::Relaxed);
            self.reclaim(self.limits.all, self.limits.tail);
        }
    }

    /// Drops output until at most `max` bytes of all processes are left, if each may keep `tail`.
    fn reclaim(&self, max: u64, tail: u64) {
        let table = self.table.lock();
        let mut stored = table.all().map(|process| process.stored()).sum::<u64>();
        let mut reclaim = |process: &Arc<Process>, drop: &dyn Fn(&mut Log)| {
            if stored > max {
                let log = &mut process.state.lock().log;
                let before = log.stored();
                drop(log);
                stored -= before - log.stored();
            }
        };
        table
            .all()
            .filter(|process| process.has_ended())
            .for_each(|process| reclaim(process, &Log::drop_stored));
        table.all().for_each(|process| reclaim(process, &Log::drop_older));
        let mut left: Vec<&Arc<Process>> = table.all().collect();
        left.sort_by_cached_key(|process| std::cmp::Reverse(process.stored()));
        left.into_iter().for_each(|process| reclaim(process, &|log| log.keep_last(tail)));
    }
}

#[cfg(test)]
mod tests {
    use super::process::{Number, State};
    use super::*;
    use rustix::process::Pid;
    use types::instance::Stream;

    const LIMITS: Limits = Limits { all: 1_000, reclaim: 400, tail: 50 };

    fn processes() -> Processes {
        Processes::with(Keep::Memory, LIMITS)
    }

    fn process(number: Number, phase: Phase, output: usize) -> Arc<Process> {
        let mut log = Log::new(Keep::Memory);
        log.append(Stream::Stdout, &vec![b'x'; output]);
        let state = State { phase, asked: None, restarts: 0, log };
        let pid = Pid::from_raw(1).unwrap();
        let plan = Plan::for_tests(&format!("{number:?}"));
        Arc::new(Process::new(number, pid, plan, Timestamp::default(), state))
    }

    #[test]
    fn the_output_of_many_small_processes_is_within_the_limit_of_all() {
        let processes = processes();
        let running = Phase::Running { pid: Pid::from_raw(1).unwrap() };
        let ended = Phase::Ended { end: End::Exited(0), at: Timestamp::default() };
        for (phase, output) in [(ended, 500), (running, 500), (running, 400), (running, 10)] {
            let mut table = processes.table.lock();
            let number = table.next_number();
            table.add(process(number, phase, output));
        }
        let stored = || processes.all().iter().map(|process| process.stored()).collect::<Vec<_>>();
        processes.reclaim(1_000, 50);
        assert_eq!(stored(), [0, 500, 400, 10]);
        processes.reclaim(500, 50);
        assert_eq!(stored(), [0, 50, 400, 10]);
        processes.reclaim(150, 50);
        assert_eq!(stored(), [0, 50, 50, 10]);
    }

    #[test]
    fn what_a_forgotten_process_has_left_behind_fills_nothing() {
        let processes = processes();
        let ended = Phase::Ended { end: End::Exited(0), at: Timestamp::default() };
        let mut table = processes.table.lock();
        for _ in 0..table::ENDED_MAX {
            let number = table.next_number();
            table.add(process(number, ended, 10));
        }
        let oldest = table.all().next().unwrap().clone();
        table.forget_surplus();
        assert_eq!((oldest.stored(), oldest.output_end()), (0, 10));
        oldest.change(|state| state.log.append(Stream::Stdout, b"more"));
        assert_eq!((oldest.stored(), oldest.output_end()), (0, 14));
        assert_eq!(table.all().next().unwrap().stored(), 10);
    }

    #[test]
    fn output_of_all_processes_counts_towards_the_next_look() {
        let processes = processes();
        for _ in 0..3 {
            processes.count_output(100);
        }
        assert_eq!(processes.since_reclaim.load(Ordering::Relaxed), 300);
        processes.count_output(100);
        assert_eq!(processes.since_reclaim.load(Ordering::Relaxed), 0);
    }
}
