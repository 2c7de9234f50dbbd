//! Executions of a job as callers list them. The history outlives the job for a while.

use super::view;
use crate::context::Context;
use crate::engine::Held;
use crate::error::{Absent, Error, Unfit, shown_name};
use crate::pager::Pager;
use crate::query::{ListQuery, PAGE, SMALL_PAGE};
use store::Tx;
use store::executions::{self, Execution, Query};
use types::Kind;
use types::kinds::Job;
use types::parts::Page;
use types::wire::{JobExecution, JobExecutionTask};

/// Most tasks that the answer about one execution shows; the others are in its list of tasks.
const TASKS_SHOWN: i64 = 100;

fn absent(name: &str) -> Error {
    Absent::Execution { name: shown_name(name) }.into()
}

/// Finds an execution of a job, even if the job is gone.
fn find(context: &Context, tx: &mut Tx<'_>, job: &str, name: &str) -> Result<Execution, Error> {
    match executions::find(tx, &context.member.workspace, job, name)? {
        Some(execution) if execution.kind == Job::NAME => Ok(execution),
        _ => Held::<Job>::get(context, tx, &[], job).and(Err(absent(name))),
    }
}

/// Returns a page of the executions of a job. `offset` is how many to skip; it exists only in the
/// first version of the interface.
pub fn page(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &str,
    asked: &ListQuery,
    offset: Option<i64>,
) -> Result<Page<JobExecution>, Error> {
    let (limit, text) = (asked.size(SMALL_PAGE)?, asked.text()?);
    let offset = offset.unwrap_or(0);
    if offset < 0 {
        return Err(Unfit::Offset.into());
    }
    let (workspace, order) = (&context.member.workspace, asked.sort.into());
    let list = format!("{workspace}/jobs/{job}/executions?{:?}&{text:?}", asked.sort);
    let pager = Pager::new(context, list);
    let after = pager.after(asked.cursor.as_deref())?;
    let query =
        Query { workspace, job, text: text.as_deref(), order, after, offset, limit: limit + 1 };
    let rows = executions::list(tx, &query)?;
    let total = executions::count(tx, &query)?;
    if total == 0 {
        Held::<Job>::get(context, tx, &[], job)?;
    }
    let Page { data, meta } = pager.page(rows, limit, total, |row| row.position(order));
    let data =
        data.iter().map(|row| view::execution(context, tx, row)).collect::<Result<_, _>>()?;
    Ok(Page { data, meta })
}

/// Returns one execution with its first tasks.
pub fn get(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &str,
    name: &str,
) -> Result<JobExecution, Error> {
    let execution = find(context, tx, job, name)?;
    shown(context, tx, &execution)
}

fn shown(context: &Context, tx: &mut Tx<'_>, execution: &Execution) -> Result<JobExecution, Error> {
    let tasks = view::tasks(context, tx, execution, 0, TASKS_SHOWN)?;
    Ok(JobExecution { tasks: Some(tasks), ..view::execution(context, tx, execution)? })
}

/// Lets no further task begin; running tasks continue to their end. Repeating this is harmless.
pub fn cancel(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &str,
    name: &str,
) -> Result<JobExecution, Error> {
    let id = find(context, tx, job, name)?.id;
    let cancelled = context.control.queue.cancel(tx, &id)?.ok_or_else(|| absent(name))?;
    shown(context, tx, &cancelled)
}

/// Returns a page of tasks in order. A cursor is the index of the next task.
pub fn tasks(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &str,
    name: &str,
    asked: &ListQuery,
) -> Result<Page<JobExecutionTask>, Error> {
    let execution = find(context, tx, job, name)?;
    let limit = asked.size(PAGE)?;
    let list = format!("{}/executions/{}/tasks", execution.workspace, execution.id);
    let pager = Pager::new(context, list);
    let from = pager.after(asked.cursor.as_deref())?.unwrap_or(0);
    let data = view::tasks(context, tx, &execution, from, limit)?;
    let next = Some(from + limit).filter(|next| *next < execution.total);
    Ok(Page { data, meta: pager.meta(next, execution.total) })
}
