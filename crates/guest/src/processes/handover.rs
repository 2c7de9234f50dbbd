//! Passes processes to the program that replaces this one, and takes them over from the previous
//! one.

use super::Processes;
use super::ask::Plan;
use super::log::{Keep, KeptLog, Log};
use super::process::{Asked, Number, Phase, Process, State};
use super::supervise::{Stage, supervise};
use crate::carried::Carried;
use crate::instance::Instance;
use crate::raw::adopt;
use crate::reaper::{End, Reaper};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::time::Instant;
use types::Timestamp;
use types::instance::Stream;

#[derive(Serialize, Deserialize)]
pub(crate) struct HandedOverProcess {
    pid: i32,
    /// With the rest of its run time.
    plan: Plan,
    started_at: Timestamp,
    phase: KeptPhase,
    asked: Option<Asked>,
    restarts: u64,
    log: KeptLog,
    outputs: Vec<(Stream, RawFd)>,
    #[serde(default)]
    input: Option<RawFd>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum KeptPhase {
    Running { pid: i32 },
    Restarting { after: End },
    Ended { end: End, at: Timestamp },
}

impl Processes {
    /// Returns whether every process that has ended has also been handled. Only then does a
    /// handover lose nothing.
    pub(crate) fn have_handled_ends(&self, reaper: &Reaper) -> bool {
        self.all().iter().all(|process| match process.state.lock().phase {
            Phase::Running { pid } => reaper.waits_for(pid),
            Phase::Restarting { .. } | Phase::Ended { .. } => true,
        })
    }

    pub(crate) fn hand_over(&self, carried: &mut Carried) -> io::Result<Vec<HandedOverProcess>> {
        self.all().iter().map(|process| process.hand_over(carried)).collect()
    }

    /// Takes over processes in the state in which they are.
    pub(crate) fn take_over(
        self: &Arc<Self>,
        instance: &Arc<Instance>,
        kept: Vec<HandedOverProcess>,
    ) -> io::Result<()> {
        let mut table = self.table.lock();
        for kept in kept {
            let input = kept.input;
            let (process, outputs, stage) =
                kept.take_over(instance, &self.keep, table.next_number())?;
            if let Some(number) = input {
                process.input.open(Some(Sender::from_owned_fd(adopt(number)?)?));
            }
            for (stream, number) in outputs {
                let pipe = Receiver::from_owned_fd(adopt(number)?)?;
                process.listen(self, stream, Arc::new(pipe));
            }
            if let Some(stage) = stage {
                tokio::spawn(supervise(instance.clone(), self.clone(), process.clone(), stage));
            }
            table.add(process);
        }
        Ok(())
    }
}

impl Process {
    fn hand_over(&self, carried: &mut Carried) -> io::Result<HandedOverProcess> {
        let state = self.state.lock();
        // An ended process is not started again, and there may be many of them.
        let environment = match state.phase {
            Phase::Ended { .. } => Arc::default(),
            Phase::Running { .. } | Phase::Restarting { .. } => self.plan.environment.clone(),
        };
        let life = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let outputs =
            self.outputs().into_iter().map(|(stream, pipe)| Ok((stream, carried.carry(&*pipe)?)));
        let outputs = outputs.collect::<io::Result<_>>()?;
        let input = self.input.pipe().map(|pipe| carried.carry(&*pipe)).transpose()?;
        Ok(HandedOverProcess {
            pid: self.pid(),
            plan: Plan { life, environment, ..self.plan.clone() },
            started_at: self.started_at,
            phase: match state.phase {
                Phase::Running { pid } => KeptPhase::Running { pid: Pid::as_raw(Some(pid)) },
                Phase::Restarting { after } => KeptPhase::Restarting { after },
                Phase::Ended { end, at } => KeptPhase::Ended { end, at },
            },
            asked: state.asked,
            restarts: state.restarts,
            log: state.log.hand_over(carried)?,
            outputs,
            input,
        })
    }
}

type Taken = (Arc<Process>, Vec<(Stream, RawFd)>, Option<Stage>);

impl HandedOverProcess {
    fn take_over(self, instance: &Instance, keep: &Keep, order: Number) -> io::Result<Taken> {
        let number =
            |pid| Pid::from_raw(pid).ok_or_else(|| io::Error::other("a process has no number"));
        let (phase, stage) = match self.phase {
            KeptPhase::Running { pid } => {
                let pid = number(pid)?;
                (
                    Phase::Running { pid },
                    Some(Stage::Running { pid, end: instance.reaper.adopt(pid) }),
                )
            }
            KeptPhase::Restarting { after } => {
                (Phase::Restarting { after }, Some(Stage::Restart { after }))
            }
            KeptPhase::Ended { end, at } => (Phase::Ended { end, at }, None),
        };
        let log = Log::take_over(self.log, keep.clone())?;
        let state = State { phase, asked: self.asked, restarts: self.restarts, log };
        let process = Process::new(order, number(self.pid)?, self.plan, self.started_at, state);
        Ok((Arc::new(process), self.outputs, stage))
    }
}
