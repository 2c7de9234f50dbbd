//! Starts processes.

use super::ask::Plan;
use super::log::Log;
use super::process::{Phase, Process, State};
use super::spawn::spawn;
use super::supervise::{Stage, supervise};
use super::{Processes, RUNNING_MAX};
use crate::http::Error;
use crate::instance::Instance;
use std::io;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("process with name '{0}' already exists and is running")]
    NameTaken(String),
    #[error("{RUNNING_MAX} processes are running already")]
    TooMany,
    #[error("failed to start process: {0}")]
    Spawn(#[source] io::Error),
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::NameTaken(_) => Self::BadRequest(error.to_string()),
            StartError::TooMany | StartError::Spawn(_) => Self::Unprocessable(error.to_string()),
        }
    }
}

impl Processes {
    pub(crate) fn start(
        self: &Arc<Self>,
        instance: &Arc<Instance>,
        plan: Plan,
    ) -> Result<Arc<Process>, StartError> {
        let mut table = self.table.lock();
        table.forget_surplus();
        if table.is_running(&plan.name) {
            return Err(StartError::NameTaken(plan.name));
        }
        if table.count_running() >= RUNNING_MAX {
            return Err(StartError::TooMany);
        }
        let mut run = spawn(instance, &plan).map_err(StartError::Spawn)?;
        let log = Log::new(self.keep.clone());
        let state = State { phase: Phase::Running { pid: run.pid }, asked: None, restarts: 0, log };
        let number = table.next_number();
        let process = Arc::new(Process::new(number, run.pid, plan, instance.world.now(), state));
        process.input.open(run.stdin.take());
        table.add(process.clone());
        let stage = Stage::Run(run);
        tokio::spawn(supervise(instance.clone(), self.clone(), process.clone(), stage));
        Ok(process)
    }
}
