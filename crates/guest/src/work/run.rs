//! Runs the work: starts it, collects its output, and determines how it ended.

use super::Work;
use crate::guest::Guest;
use crate::processes::{Plan, Run, drain, read_once, spawn};
use crate::reaper::End as Ended;
use rustix::process::{Pid, Signal, getpid, kill_process_group};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use types::instance::{Outcome, Stream, WorkEnd};

/// How long a full output buffer waits for a reader before the oldest output is dropped.
const READER_WAIT: Duration = Duration::from_secs(2);
/// Longest reason for a failed start that the machine is told.
const REASON_CHARACTERS: usize = 500;

/// Runs the work and records how it ended.
pub(crate) async fn run(guest: Arc<Guest>, work: Arc<Work>) {
    let started_at = guest.instance.world.now();
    let outcome = match start(&guest, &work) {
        Ok(run) => see_through(&guest, &work, run).await,
        Err(reason) => Outcome::NotStarted(reason.chars().take(REASON_CHARACTERS).collect()),
    };
    let end =
        WorkEnd { outcome, started_at: Some(started_at), ended_at: guest.instance.world.now() };
    work.change(|state| state.end = Some(end));
}

fn start(guest: &Guest, work: &Work) -> Result<Run, String> {
    if let Some(reason) = &work.refused {
        return Err(reason.clone());
    }
    let mut plan = Plan::of_words(&guest.instance, &work.orders.command)?;
    let listener = guest.address().map_err(|error| error.to_string())?;
    if let Some(address) = work.data_address(listener) {
        plan.set_variable(types::work::DATA_VARIABLE, &address);
    }
    spawn(&guest.instance, &plan)
        .map_err(|error| format!("`{}` cannot be started: {error}", plan.program().display()))
}

/// Why the work is ended before its program ends by itself.
enum Cut {
    TimedOut,
    Interrupted,
}

async fn see_through(guest: &Guest, work: &Work, run: Run) -> Outcome {
    let Run { pid, mut end, stdout, stderr, .. } = run;
    let moving = async {
        tokio::join!(
            pump(guest, work, Stream::Stdout, &stdout),
            pump(guest, work, Stream::Stderr, &stderr)
        );
        // The work does not end just because both streams are closed.
        std::future::pending().await
    };
    let outcome = tokio::select! {
        outcome = until_end(work, pid, &mut end) => outcome,
        outcome = moving => outcome,
    };
    // Whatever the work has left behind.
    kill(pid);
    for (stream, pipe) in [(Stream::Stdout, &stdout), (Stream::Stderr, &stderr)] {
        drain(pipe, |bytes| keep(guest, work, stream, bytes));
    }
    outcome
}

async fn until_end(work: &Work, pid: Pid, end: &mut oneshot::Receiver<Ended>) -> Outcome {
    let cut = tokio::select! {
        // If the work has already ended, it was not cut short.
        biased;
        ended = &mut *end => return told(ended),
        () = work.interrupted.notified() => Cut::Interrupted,
        () = over(work.orders.timeout_ms) => Cut::TimedOut,
    };
    let grace = Duration::from_millis(work.orders.grace_ms);
    if !grace.is_zero() {
        // If there is nothing to signal, the end is on its way.
        let _ = kill_process_group(pid, Signal::TERM);
    }
    if timeout(grace, &mut *end).await.is_err() {
        kill(pid);
        // However it ended, the reason is the cut.
        let _ = end.await;
    }
    match cut {
        Cut::TimedOut => Outcome::TimedOut,
        Cut::Interrupted => Outcome::Interrupted,
    }
}

async fn over(after_ms: Option<u64>) {
    match after_ms {
        Some(ms) => sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}

fn told(ended: Result<Ended, oneshot::error::RecvError>) -> Outcome {
    match ended {
        Ok(Ended::Exited(code)) => Outcome::Exited(code),
        Ok(Ended::Signalled(signal)) => Outcome::Killed(signal),
        // The reaper never drops a sender without using it; if it did, nobody would know how the
        // work ended.
        Err(_) => Outcome::Killed(0),
    }
}

/// Kills everything. If this is the first process of an instance, that is all processes except
/// itself; elsewhere there are others, and only the work's process group belongs to it.
fn kill(group: Pid) {
    let all = if getpid().is_init() { Pid::INIT } else { group };
    // It does not matter if nothing is left to kill.
    let _ = kill_process_group(all, Signal::KILL);
}

/// Moves output until the other end is closed. Can be cancelled while it waits, because nothing has
/// been read then.
async fn pump(guest: &Guest, work: &Work, stream: Stream, pipe: &Receiver) {
    loop {
        work.room().await;
        if pipe.readable().await.is_err() {
            return;
        }
        match read_once(pipe, |bytes| keep(guest, work, stream, bytes)) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        // A program that prints endlessly must let the other tasks have their turn.
        tokio::task::yield_now().await;
    }
}

fn keep(guest: &Guest, work: &Work, stream: Stream, bytes: &[u8]) {
    let at = guest.instance.world.now();
    work.change(|state| state.output.append(stream, at, bytes));
}

impl Work {
    /// Waits until there is room for more output, but not forever: the work continues even without
    /// a reader.
    async fn room(&self) {
        loop {
            let fetched = self.fetched.notified();
            tokio::pin!(fetched);
            // From here on no notification is missed.
            fetched.as_mut().enable();
            if self.state.lock().output.has_room() {
                return;
            }
            if timeout(READER_WAIT, fetched).await.is_err() {
                self.state.lock().output.abandon();
            }
        }
    }
}
