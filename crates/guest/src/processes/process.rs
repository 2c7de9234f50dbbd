//! One process: its phase, what was asked of it, and its output.

use super::ask::Plan;
use super::input::Input;
use super::log::Log;
use crate::http::Error;
use crate::reaper::End;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use std::sync::Weak;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::Instant;
use types::Timestamp;
use types::instance::Stream;

/// How long the answer to a stop request waits for the end. A process that ignores the signal keeps
/// running, and is shown as running.
const STOP_WAIT: Duration = Duration::from_secs(2);

/// The place of a process in the order of starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Number(u64);

impl Number {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Running { pid: Pid },
    Restarting { after: End },
    Ended { end: End, at: Timestamp },
}

/// What a request has asked of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Asked {
    Stop,
    Kill,
}

pub(crate) struct Process {
    pub(super) number: Number,
    /// The pid of the first run. Restarts keep it, so that it continues to identify the process.
    pub(super) pid: Pid,
    pub(super) plan: Plan,
    pub(super) started_at: Timestamp,
    /// When the process is killed.
    pub(super) deadline: Option<Instant>,
    pub(super) state: Mutex<State>,
    pub(super) input: Input,
    pub(super) changed: watch::Sender<()>,
    /// The pipes from which output still comes, including those of earlier runs.
    pub(super) outputs: Mutex<Vec<(Stream, Weak<Receiver>)>>,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) asked: Option<Asked>,
    pub(super) restarts: u64,
    pub(super) log: Log,
}

impl Process {
    pub(super) fn new(
        number: Number,
        pid: Pid,
        plan: Plan,
        started_at: Timestamp,
        state: State,
    ) -> Self {
        Self {
            number,
            pid,
            started_at,
            // A program that was replaced may have accepted a longer life than a clock can represent.
            deadline: plan.life.and_then(|life| Instant::now().checked_add(life)),
            plan,
            state: Mutex::new(state),
            input: Input::default(),
            changed: watch::Sender::new(()),
            outputs: Mutex::default(),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        Pid::as_raw(Some(self.pid))
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.name
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Ended { .. })
    }

    /// Returns the process group that runs now.
    pub(crate) fn running_pid(&self) -> Option<i32> {
        match self.state.lock().phase {
            Phase::Running { pid } => Some(Pid::as_raw(Some(pid))),
            Phase::Restarting { .. } | Phase::Ended { .. } => None,
        }
    }

    pub(super) fn stored(&self) -> u64 {
        self.state.lock().log.stored()
    }

    /// Returns the position after all output so far.
    pub(super) fn output_end(&self) -> u64 {
        self.state.lock().log.end()
    }

    /// Describes the failure of a process that ended unsuccessfully by itself.
    pub(crate) fn failure(&self) -> Option<String> {
        let state = self.state.lock();
        match state.phase {
            _ if state.asked.is_some() => None,
            Phase::Ended { end: End::Exited(0), .. }
            | Phase::Running { .. }
            | Phase::Restarting { .. } => None,
            Phase::Ended { end: End::Exited(code), .. } => {
                Some(format!("it ended with code {code}"))
            }
            Phase::Ended { end: End::Signalled(signal), .. } => {
                Some(format!("it was killed by signal {signal}"))
            }
        }
    }

    pub(crate) async fn ended(&self) {
        let mut changed = self.changed.subscribe();
        while !self.has_ended() && changed.changed().await.is_ok() {}
    }

    /// Signals the whole process group, and waits a little for its end.
    pub(crate) async fn ask(&self, asked: Asked) -> Result<(), Error> {
        self.signal(asked)?;
        // A missing end is not an error: the signal has been sent.
        let _ = tokio::time::timeout(STOP_WAIT, self.ended()).await;
        Ok(())
    }

    pub(super) fn signal(&self, asked: Asked) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Phase::Ended { .. } = state.phase {
            return Err(Error::NotFound(format!("process '{}' is not running", self.plan.name)));
        }
        state.asked = Some(asked);
        let signal = match asked {
            Asked::Stop => Signal::TERM,
            Asked::Kill => Signal::KILL,
        };
        if let Phase::Running { pid } = state.phase
            && let Err(error) = rustix::process::kill_process_group(pid, signal)
            && error != rustix::io::Errno::SRCH
        {
            return Err(Error::Internal(format!(
                "failed to signal process '{}': {error}",
                self.plan.name
            )));
        }
        Ok(())
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::log::Keep;

    #[test]
    fn a_life_that_no_clock_can_represent_has_no_end() {
        let mut plan = Plan::for_tests("long");
        plan.life = Some(Duration::MAX);
        let phase = Phase::Restarting { after: End::Exited(1) };
        let log = Log::new(Keep::Memory);
        let state = State { phase, asked: None, restarts: 0, log };
        let number = Number::default().next();
        let pid = Pid::from_raw(1).unwrap();
        let process = Process::new(number, pid, plan, Timestamp::default(), state);
        assert_eq!(process.deadline, None);
    }
}
