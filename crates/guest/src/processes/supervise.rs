//! Supervises one process, from its start to its final end.

use super::Processes;
use super::pipe::{drain, read_once};
use super::process::{Asked, Phase, Process};
use super::spawn::{Run, spawn};
use crate::instance::Instance;
use crate::reaper::End;
use rustix::process::{Pid, Signal};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::time::Instant;
use types::instance::Stream;

const RESTART_DELAY: Duration = Duration::from_secs(1);

/// What follows the end of a run.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    End,
    Restart,
}

/// The stage at which supervision starts.
pub(super) enum Stage {
    Run(Run),
    /// A run taken over from the previous program; its output is already being read.
    Running {
        pid: Pid,
        end: oneshot::Receiver<End>,
    },
    Restart {
        after: End,
    },
}

pub(super) async fn supervise(
    instance: Arc<Instance>,
    processes: Arc<Processes>,
    process: Arc<Process>,
    stage: Stage,
) {
    let end = see_through(&instance, &processes, &process, stage).await;
    processes.end(&process, end, instance.world.now());
}

/// Sees all runs through, and returns how the last one has ended.
async fn see_through(
    instance: &Instance,
    processes: &Arc<Processes>,
    process: &Arc<Process>,
    mut stage: Stage,
) -> End {
    loop {
        let end = match stage {
            Stage::Run(Run { pid, end, stdout, stderr, .. }) => {
                process.listen(processes, Stream::Stdout, stdout);
                process.listen(processes, Stream::Stderr, stderr);
                run_to_end(processes, process, pid, end).await
            }
            Stage::Running { pid, end } => run_to_end(processes, process, pid, end).await,
            Stage::Restart { after } => after,
        };
        process.input.end();
        if process.next(end) == Next::End {
            return end;
        }
        process.change(|state| state.phase = Phase::Restarting { after: end });
        tokio::time::sleep(RESTART_DELAY).await;
        if process.state.lock().asked.is_some() {
            return end;
        }
        match spawn(instance, &process.plan) {
            Ok(mut run) => {
                process.begin_again(&mut run);
                stage = Stage::Run(run);
            }
            Err(error) => {
                process.note(&format!("failed to restart: {error}"));
                return End::Exited(1);
            }
        }
    }
}

/// Waits for the end of one run. When it returns, everything that the run wrote is in the log.
async fn run_to_end(
    processes: &Processes,
    process: &Process,
    pid: Pid,
    mut end: oneshot::Receiver<End>,
) -> End {
    let ended = tokio::select! {
        ended = &mut end => ended,
        () = until(process.deadline) => {
            process.state.lock().asked = Some(Asked::Kill);
            // If there is nothing to kill, the end is on its way.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            end.await
        }
    };
    let mut drained = 0;
    for (stream, pipe) in process.outputs() {
        drain(&pipe, |bytes| {
            drained += bytes.len();
            process.change(|state| state.log.append(stream, bytes));
        });
    }
    processes.count_output(drained);
    // The reaper never drops a sender without using it; if it did, the process would still be gone.
    ended.unwrap_or(End::Exited(1))
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Moves output to the log until nobody has the other end open any more, which may be long after
/// the process ended.
async fn pump(
    processes: Arc<Processes>,
    process: Arc<Process>,
    stream: Stream,
    pipe: Arc<Receiver>,
) {
    while pipe.readable().await.is_ok() {
        let keep = |bytes: &[u8]| process.change(|state| state.log.append(stream, bytes));
        match read_once(&pipe, keep) {
            Ok(0) => return,
            Ok(length) => processes.count_output(length),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        // A command that prints endlessly must let the other tasks have their turn.
        tokio::task::yield_now().await;
    }
}

impl Process {
    /// Starts moving output to the log.
    pub(super) fn listen(
        self: &Arc<Self>,
        processes: &Arc<Processes>,
        stream: Stream,
        pipe: Arc<Receiver>,
    ) {
        let mut outputs = self.outputs.lock();
        outputs.retain(|(_, pipe)| pipe.strong_count() > 0);
        outputs.push((stream, Arc::downgrade(&pipe)));
        tokio::spawn(pump(processes.clone(), self.clone(), stream, pipe));
    }

    /// Returns the pipes that are still being read.
    pub(super) fn outputs(&self) -> Vec<(Stream, Arc<Receiver>)> {
        self.outputs
            .lock()
            .iter()
            .filter_map(|(stream, pipe)| Some((*stream, pipe.upgrade()?)))
            .collect()
    }

    fn next(&self, end: End) -> Next {
        let state = self.state.lock();
        let left = u64::try_from(self.plan.max_restarts).map_or(true, |max| state.restarts < max);
        match self.plan.restart_on_failure && end != End::Exited(0) && state.asked.is_none() && left
        {
            true => Next::Restart,
            false => Next::End,
        }
    }

    fn begin_again(&self, run: &mut Run) {
        self.input.open(run.stdin.take());
        let restarts = self.state.lock().restarts + 1;
        let of = match self.plan.max_restarts {
            max @ 0.. => format!(" of {max}"),
            _ => String::new(),
        };
        self.note(&format!("process failed, restart {restarts}{of}"));
        self.change(|state| {
            state.restarts = restarts;
            state.phase = Phase::Running { pid: run.pid };
        });
    }

    /// Writes a line of our own into the output.
    fn note(&self, text: &str) {
        self.change(|state| state.log.append(Stream::Stderr, format!("[{text}]\n").as_bytes()));
    }
}
