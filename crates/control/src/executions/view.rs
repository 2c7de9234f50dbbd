//! Executions and tasks as callers read them.

use crate::context::Context;
use crate::error::Error;
use jobs::{Plan, failure_of_row};
use serde_json::{Map, Value};
use store::Tx;
use store::executions::tasks::{self, State, Task};
use store::executions::{Execution, Phase};
use types::instance::Outcome;
use types::wire::{
    Free, JobExecution, JobExecutionMetadata, JobExecutionSpec, JobExecutionStats,
    JobExecutionTask, JobExecutionTaskCondition, JobExecutionTaskMetadata, JobExecutionTaskSpec,
    JobExecutionTaskStatus,
};

const MASKED: &str = "***";

/// Returns an execution without its tasks.
pub(crate) fn execution(
    context: &Context,
    tx: &mut Tx<'_>,
    execution: &Execution,
) -> Result<JobExecution, Error> {
    let keyring = context.control.store.keyring();
    let plan = jobs::plan(tx, &keyring.read(), &execution.id)?.unwrap_or_default();
    let metadata = JobExecutionMetadata {
        completed_at: execution.ended_at,
        created_at: Some(execution.created_at),
        id: Some(execution.name.clone()),
        job: Some(execution.job.clone()),
        started_at: execution.started_at,
        updated_at: Some(execution.updated_at),
        workspace: Some(context.member.workspace_name.clone()),
        ..JobExecutionMetadata::default()
    };
    let (spec, stats, status) = (spec(execution, &plan), stats(execution), jobs::status(execution));
    Ok(JobExecution { metadata, spec, stats: Some(stats), status: Some(status), tasks: None })
}

fn spec(execution: &Execution, plan: &Plan) -> JobExecutionSpec {
    let masked: Free = plan
        .env_override
        .iter()
        .map(|name| (name.clone(), Value::from(MASKED)))
        .collect::<Map<_, _>>();
    JobExecutionSpec {
        env_override: Some(masked).filter(|masked| !masked.is_empty()),
        memory_override: plan.memory_override,
        parallelism: Some(execution.parallelism),
        tasks: None,
        timeout: plan.timeout_s.map(i64::from),
    }
}

fn stats(execution: &Execution) -> JobExecutionStats {
    let counts = execution.counts;
    JobExecutionStats {
        cancelled: Some(counts.cancelled),
        failure: Some(counts.failed),
        retried: Some(counts.retried),
        running: Some(counts.running),
        success: Some(counts.succeeded),
        total: Some(execution.total),
    }
}

/// Returns at most `limit` tasks of an execution, beginning at index `from`.
pub(crate) fn tasks(
    context: &Context,
    tx: &mut Tx<'_>,
    execution: &Execution,
    from: i64,
    limit: i64,
) -> Result<Vec<JobExecutionTask>, Error> {
    let keyring = context.control.store.keyring();
    let plan = jobs::plan(tx, &keyring.read(), &execution.id)?.unwrap_or_default();
    let spec = JobExecutionTaskSpec {
        max_retries: Some(execution.retries_max),
        timeout: plan.timeout_s.map(|seconds| format!("{seconds}s")),
    };
    let mut rows = tasks::page(tx, &execution.id, from, limit)?.into_iter().peekable();
    let indices = from..execution.total.min(from.saturating_add(limit));
    let view = |index| match rows.next_if(|row| row.index == index) {
        Some(row) => claimed(execution, &row, &spec),
        None => Ok(never_claimed(execution, index, &spec)),
    };
    indices.map(view).collect()
}

fn never_claimed(
    execution: &Execution,
    index: i64,
    spec: &JobExecutionTaskSpec,
) -> JobExecutionTask {
    let status = match execution.phase {
        Phase::Cancelling | Phase::Cancelled => JobExecutionTaskStatus::Cancelled,
        _ => JobExecutionTaskStatus::Pending,
    };
    let metadata = JobExecutionTaskMetadata {
        created_at: Some(execution.created_at),
        name: Some(index.to_string()),
        ..JobExecutionTaskMetadata::default()
    };
    JobExecutionTask {
        conditions: None,
        metadata: Some(metadata),
        spec: Some(spec.clone()),
        status: Some(status),
    }
}

fn claimed(
    execution: &Execution,
    task: &Task,
    spec: &JobExecutionTaskSpec,
) -> Result<JobExecutionTask, Error> {
    let ended = matches!(task.state, State::Succeeded | State::Failed | State::Cancelled);
    let metadata = JobExecutionTaskMetadata {
        completed_at: task.ended_at.filter(|_| ended),
        created_at: Some(execution.created_at),
        name: Some(task.index.to_string()),
        scheduled_at: Some(task.claimed_at),
        started_at: task.started_at,
        updated_at: task.ended_at.or(Some(task.claimed_at)),
    };
    let status = match task.state {
        State::Waiting(_) => JobExecutionTaskStatus::Reconciling,
        State::Running => JobExecutionTaskStatus::Running,
        State::Succeeded => JobExecutionTaskStatus::Succeeded,
        State::Failed => JobExecutionTaskStatus::Failed,
        State::Cancelled => JobExecutionTaskStatus::Cancelled,
    };
    let conditions = Some(conditions(task)?).filter(|conditions| !conditions.is_empty());
    Ok(JobExecutionTask {
        conditions,
        metadata: Some(metadata),
        spec: Some(spec.clone()),
        status: Some(status),
    })
}

/// Returns how the attempts of a task ended: the outcome, and why an attempt did not succeed.
fn conditions(task: &Task) -> Result<Vec<JobExecutionTaskCondition>, Error> {
    let failure = task.failure.as_ref().map(failure_of_row).transpose()?;
    let (kind, state, severity) = match task.state {
        State::Succeeded => ("Completed", "Succeeded", "Info"),
        State::Failed => ("Completed", "Failed", "Error"),
        State::Cancelled => ("Completed", "Cancelled", "Info"),
        State::Waiting(_) | State::Running if failure.is_some() => ("Retry", "Pending", "Warning"),
        State::Waiting(_) | State::Running => return Ok(Vec::new()),
    };
    Ok(vec![JobExecutionTaskCondition {
        execution_reason: failure.as_ref().map(code),
        message: Some(message(task, failure.as_ref())),
        reason: failure.as_ref().map(|failure| reason(failure).to_owned()),
        severity: Some(severity.to_owned()),
        state: Some(state.to_owned()),
        kind: Some(kind.to_owned()),
    }])
}

const fn reason(failure: &Outcome) -> &'static str {
    match failure {
        Outcome::Exited(_) => "NonZeroExitCode",
        Outcome::Killed(_) => "Signal",
        Outcome::OutOfMemory => "OutOfMemory",
        Outcome::TimedOut => "Timeout",
        Outcome::NotStarted(_) | Outcome::NoImage(_) => "NotStarted",
        Outcome::Interrupted | Outcome::Lost(_) => "Lost",
    }
}

/// Returns a code for programs: the exit code or signal number if there is one.
fn code(failure: &Outcome) -> String {
    match failure {
        Outcome::Exited(number) | Outcome::Killed(number) => number.to_string(),
        other => reason(other).to_owned(),
    }
}

fn message(task: &Task, failure: Option<&Outcome>) -> String {
    let attempt = task.attempt;
    let tries = match failure {
        None => return format!("attempt {attempt} succeeded"),
        Some(Outcome::Exited(code)) => format!("exited with code {code}"),
        Some(Outcome::Killed(signal)) => format!("was killed by signal {signal}"),
        Some(Outcome::OutOfMemory) => "used more memory than it may".to_owned(),
        Some(Outcome::TimedOut) => "ran longer than it may".to_owned(),
        Some(Outcome::NotStarted(why) | Outcome::NoImage(why)) => {
            format!("could not be started: {why}")
        }
        Some(Outcome::Interrupted) => "was lost: it was interrupted".to_owned(),
        Some(Outcome::Lost(why)) => format!("was lost: {why}"),
    };
    match task.state {
        State::Waiting(until) => {
            format!("attempt {attempt} {tries}; the next one begins at {until}")
        }
        State::Running => format!("attempt {} {tries}; attempt {attempt} runs", attempt - 1),
        _ => format!("attempt {attempt} {tries}"),
    }
}
