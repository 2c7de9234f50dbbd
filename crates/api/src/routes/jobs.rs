//! Starting executions of jobs.

use crate::http::call::{Body, Call};
use crate::http::error::Error;
use crate::http::query::NoQuery;
use crate::http::reply::Reply;
use auth::Member;
use control::engine::Held;
use control::executions::{self, ExecutionRequest};
use types::Problems;
use types::kinds::Job;
use types::parts::Sensitive;
use types::wire::{CreateJobExecutionOutput, CreateJobExecutionRequest, Free};

pub(crate) async fn execute(
    call: Call<Member, NoQuery, Body<CreateJobExecutionRequest>>,
) -> Result<Reply<CreateJobExecutionOutput>, Error> {
    let (context, job, body) = (call.context(), call.path.name().to_owned(), call.body.0.clone());
    let work = move |tx: &mut store::Tx<'_>| {
        let held = Held::<Job>::lock(&context, tx, &[], &job)?;
        let execution = executions::start(&context, tx, &held, &asked(&body)?)?;
        Ok::<_, control::Error>(CreateJobExecutionOutput {
            execution_id: Some(execution.name.clone()),
            id: Some(execution.name),
            job_id: Some(execution.job),
            tasks: readable(body.tasks.as_ref()),
            workspace_id: Some(context.member.workspace_name.clone()),
        })
    };
    call.once(work).await
}

/// Returns the tasks for the answer, or nothing if one of them is empty: the published Python
/// client fails on an empty object there, although the execution has been started.
fn readable(tasks: Option<&Vec<Free>>) -> Option<Vec<Free>> {
    tasks.filter(|tasks| tasks.iter().all(|task| !task.is_empty())).cloned()
}

fn asked(body: &CreateJobExecutionRequest) -> Result<ExecutionRequest, control::Error> {
    let mut problems = Problems::default();
    body.check(&mut problems);
    let tasks = body.tasks.clone().unwrap_or_default();
    problems.require(!tasks.is_empty(), "tasks", "must hold at least one task");
    let given = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
    let (id, execution_id) = (given(&body.id), given(&body.execution_id));
    let same = id.is_none() || execution_id.is_none() || id == execution_id;
    problems.require(same, "id", "must be the same as `executionId`, or one of them left out");
    problems.into_result()?;
    Ok(ExecutionRequest {
        tasks,
        name: execution_id.or(id),
        memory: body.memory,
        env: body.env.clone().map(|Sensitive(env)| env).unwrap_or_default(),
        at_once: body.allow_queue == Some(false),
        ..ExecutionRequest::default()
    })
}
