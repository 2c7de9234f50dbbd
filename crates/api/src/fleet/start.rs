//! Starting executions of jobs on behalf of triggers: the one place that knows how.

use crate::engine::{self, Desk, Held};
use crate::error::Error;
use jobs::{NewExecution, Plan, StartError};
use store::Tx;
use store::executions::Execution;
use types::ids::ExecutionId;
use types::kinds::Job;
use types::wire::Free;

/// An execution to be.
pub(crate) struct Start {
    /// By which callers know it.
    pub name: String,
    /// The arguments of each task.
    pub tasks: Vec<Free>,
    /// Seconds of one task, where the job does not say less.
    pub timeout_s: Option<i64>,
}

pub(crate) fn start(desk: &Desk, tx: &mut Tx<'_>, job: &Held<Job>, start: Start) -> Result<Execution, Error> {
    let wish = engine::opened(desk, job)?;
    let runtime = wish.spec.runtime.unwrap_or_default();
    let timeout_s = runtime.timeout.into_iter().chain(start.timeout_s).min();
    let new = NewExecution {
        id: ExecutionId::new(desk.world()),
        workspace: job.row.workspace.clone(),
        job_id: job.row.id.clone(),
        job: job.row.name.clone(),
        name: start.name,
        memory_mb: runtime.memory.unwrap_or(2048),
        retries_max: runtime.max_retries.unwrap_or(0),
        parallelism: runtime.max_concurrent_tasks,
        plan: Plan {
            image: runtime.image.unwrap_or_default(),
            timeout_s: timeout_s.map(|s| s as u32),
            ..Plan::default()
        },
        tasks: start.tasks.into_iter().map(|task| serde_json::Value::Object(task).to_string()).collect(),
        may_wait: true,
    };
    let queue = jobs::Queue::new(jobs::Settings::default(), vec![std::sync::Arc::new(jobs::callbacks::Callbacks)]);
    let keyring = desk.app.store.keyring();
    let started = queue.start(tx, &keyring.read(), &new);
    started.map_err(|error| match error {
        StartError::Store(error) => error.into(),
        other => Error::Malformed(other.to_string()),
    })
}
