//! What the schedules of sandboxes did: of one sandbox, and of all in the workspace.

use crate::context::Context;
use crate::engine::Held;
use crate::error::Error;
use crate::pager::{Pager, TimePosition};
use crate::query::{AgeSort, ListQuery, SMALL_PAGE};
use store::Tx;
use store::firings::{self, Firing, Of, Query, Submission};
use store::resources;
use types::kinds::{Sandbox, Schedule};
use types::parts::{Page, PaginationMeta, Status};
use types::wire::{
    SandboxScheduleExecution, SandboxScheduleExecutionStatus,
    SandboxScheduleExecutionStatusMetrics, SandboxScheduleMetrics,
};
use types::{Kind, Timestamp};

/// Which executions of a workspace are asked for.
#[derive(Debug, Clone, Default)]
pub struct FiringQuery {
    /// Page size, cursor and text to search for.
    pub list: ListQuery,
    pub sort: AgeSort,
    pub status: Option<SandboxScheduleExecutionStatus>,
    pub sandbox: Option<String>,
    pub schedule: Option<String>,
    /// Earliest and latest time of creation.
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

/// Returns a page of the executions of one sandbox, newest first.
pub fn of_sandbox(
    context: &Context,
    tx: &mut Tx<'_>,
    name: &str,
    asked: &ListQuery,
) -> Result<Page<SandboxScheduleExecution>, Error> {
    let limit = asked.size(SMALL_PAGE)?;
    let sandbox = Held::<Sandbox>::get(context, tx, &[], name)?.row.id;
    let list = format!("{}/schedule-executions/{sandbox}", context.member.workspace);
    let pager = Pager::new(context, list);
    page(tx, &pager, asked.cursor.as_deref(), limit, Query::new(Of::Sandbox(&sandbox)))
}

/// Returns a page of the executions of all sandboxes.
pub fn of_workspace(
    context: &Context,
    tx: &mut Tx<'_>,
    asked: &FiringQuery,
) -> Result<Page<SandboxScheduleExecution>, Error> {
    let (limit, text) = (asked.list.size(SMALL_PAGE)?, asked.list.text()?);
    let FiringQuery { sort, status, sandbox, schedule, since, until, .. } = asked;
    let workspace = &context.member.workspace;
    let list = format!(
        "{workspace}/schedule-executions?{sort:?}&{text:?}&{status:?}&{sandbox:?}&{schedule:?}&{since:?}&{until:?}"
    );
    let pager = Pager::new(context, list);
    let sandbox = match sandbox {
        None => None,
        Some(name) => match Held::<Sandbox>::find(context, tx, &[], name)? {
            Some(held) => Some(held.row.id),
            None => return Ok(Page { data: Vec::new(), meta: PaginationMeta::default() }),
        },
    };
    let query = Query {
        schedule: schedule.as_deref(),
        submission: status.map(submission),
        text: text.as_deref(),
        since: *since,
        until: *until,
        oldest_first: *sort == AgeSort::CreatedAsc,
        ..Query::new(sandbox.as_ref().map_or(Of::Workspace(workspace), Of::Sandbox))
    };
    page(tx, &pager, asked.list.cursor.as_deref(), limit, query)
}

fn page(
    tx: &mut Tx<'_>,
    pager: &Pager<'_>,
    cursor: Option<&str>,
    limit: i64,
    query: Query<'_>,
) -> Result<Page<SandboxScheduleExecution>, Error> {
    let after: Option<TimePosition> = pager.after(cursor)?;
    let after = after.as_ref().map(|after| (after.at, after.id.as_str()));
    let total = firings::count(tx, &query)?;
    let found = firings::list(tx, &Query { after, limit: limit + 1, ..query })?;
    let at = |one: &Firing| TimePosition { at: one.created_at, id: one.id.clone() };
    let Page { data, meta } = pager.page(found, limit, total, at);
    Ok(Page { data: data.into_iter().map(execution).collect(), meta })
}

/// Returns how often schedules of the workspace started something, and how many there are.
pub fn metrics(
    context: &Context,
    tx: &mut Tx<'_>,
    since: Timestamp,
    until: Timestamp,
) -> Result<SandboxScheduleMetrics, Error> {
    let workspace = &context.member.workspace;
    let counts = firings::counts(tx, workspace, since, until)?;
    let live = resources::Query {
        hidden_statuses: &[Status::Terminated],
        ..resources::Query::new(workspace, Sandbox::NAME, None)
    };
    Ok(SandboxScheduleMetrics {
        executions: counts.begun,
        executions_by_status: SandboxScheduleExecutionStatusMetrics {
            succeeded: counts.accepted,
            failed: counts.refused,
        },
        sandboxes: resources::total(tx, &live)?,
        schedules: resources::total(tx, &resources::Query::new(workspace, Schedule::NAME, None))?,
        since,
        until,
    })
}

fn execution(firing: Firing) -> SandboxScheduleExecution {
    let outcome = firing.outcome;
    SandboxScheduleExecution {
        created_at: Some(firing.created_at),
        id: Some(firing.id),
        sandbox: Some(firing.sandbox),
        schedule_id: Some(firing.schedule),
        timeout: firing.timeout_s,
        executed_at: outcome.as_ref().map(|outcome| outcome.executed_at),
        process_name: outcome.as_ref().and_then(|outcome| outcome.process_name.clone()),
        status: outcome.as_ref().map(|outcome| status(outcome.submission())),
        status_code: outcome.as_ref().map(|outcome| outcome.status_code),
        error: outcome.and_then(|outcome| outcome.error),
    }
}

fn status(submission: Submission) -> SandboxScheduleExecutionStatus {
    match submission {
        Submission::Accepted => SandboxScheduleExecutionStatus::Succeeded,
        Submission::Refused => SandboxScheduleExecutionStatus::Failed,
    }
}

fn submission(status: SandboxScheduleExecutionStatus) -> Submission {
    match status {
        SandboxScheduleExecutionStatus::Succeeded => Submission::Accepted,
        SandboxScheduleExecutionStatus::Failed => Submission::Refused,
    }
}
