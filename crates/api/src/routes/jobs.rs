//! Starting executions of jobs.

use crate::call::{Body, Call};
use crate::engine::Held;
use crate::error::Error;
use crate::missing::Missing;
use crate::query::NoQuery;
use crate::reply::Reply;
use auth::Member;
use types::kinds::Job;
use types::wire::{CreateJobExecutionOutput, CreateJobExecutionRequest};
use types::{Kind, Problems};

/// Checks all that can be checked; running the tasks is not part of this release.
pub(crate) async fn execute(
    call: Call<Member, NoQuery, Body<CreateJobExecutionRequest>>,
) -> Result<Reply<CreateJobExecutionOutput>, Error> {
    let (desk, name, asked) = (call.desk(), call.path.name().to_owned(), call.body.0);
    let job = call.app.store.read(move |tx| Held::<Job>::get(&desk, tx, &[], &name)).await?;
    if !job.wish.enabled() {
        return Err(Error::Malformed("the job is disabled; set `spec.enabled` to true first".into()));
    }
    let mut problems = Problems::default();
    asked.check(&mut problems);
    problems.require(
        asked.tasks.as_ref().is_some_and(|tasks| !tasks.is_empty()),
        "tasks",
        "must hold at least one task",
    );
    let limit = job.wish.spec.runtime.as_ref().and_then(|runtime| runtime.memory);
    let fits = asked.memory.zip(limit).is_none_or(|(memory, limit)| memory <= limit);
    problems.require(fits, "memory", "must not be more than the job's `spec.runtime.memory`");
    problems.into_result()?;
    Err(Error::Missing(Missing::RunTasks))
}
