//! Runners for the workflows of a code host. Each runner is an execution of a job.

use super::rows;
use crate::control::Control;
use crate::error::Error;
use crate::executions::{self, ExecutionRequest};
use ::jobs::runners::{NoClient, Progress, Runners, Settings, StartError, Starter};
use std::sync::Arc;
use store::Tx;
use types::ids::{ExecutionId, ResourceId};
use types::kinds::Job;
use types::parts::Sensitive;
use types::wire::Free;

/// Returns the runners of this installation. Their executions go through the same queue as all
/// others.
pub fn runners(control: &Control, settings: Settings) -> Result<Runners, NoClient> {
    Runners::new(control.store.clone(), settings, Arc::new(Executions(control.clone())))
}

struct Executions(Control);

impl Starter for Executions {
    fn start(
        &self,
        tx: &mut Tx<'_>,
        job: &ResourceId,
        variables: &[(&str, Sensitive<String>)],
    ) -> Result<ExecutionId, StartError> {
        let gone = || StartError::Refused("the job is gone".into());
        let found = rows::lock_in::<Job>(&self.0, tx, job).map_err(refused)?;
        let (context, held) = found.ok_or_else(gone)?;
        let env =
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.0.clone())).collect();
        let asked = ExecutionRequest {
            tasks: vec![Free::default()],
            env,
            retries: Some(0),
            ..ExecutionRequest::default()
        };
        Ok(executions::start(&context, tx, &held, &asked).map_err(refused)?.id)
    }

    fn cancel(&self, tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<(), store::Error> {
        self.0.queue.cancel(tx, execution).map(drop)
    }

    fn progress(&self, tx: &mut Tx<'_>, execution: &ExecutionId) -> Result<Progress, store::Error> {
        let known = store::executions::find_by_id(tx, execution)?
            .filter(|execution| !execution.phase.has_ended());
        Ok(match known.map(|execution| execution.started_at) {
            None => Progress::Ended,
            Some(None) => Progress::Queued,
            Some(Some(since)) => Progress::Running { since },
        })
    }
}

fn refused(error: Error) -> StartError {
    match error {
        Error::Store(error) => StartError::Store(error),
        other => StartError::Refused(other.to_string()),
    }
}
