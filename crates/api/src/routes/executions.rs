//! Executions of jobs: lists, one of them, its tasks, and the way to cancel it. History outlives
//! the job for a while.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::query::{ListQuery, NoQuery, PAGE, SMALL_PAGE, Sort};
use crate::http::reply::Reply;
use auth::Member;
use control::Context;
use control::engine::{Held, Listing, Page};
use control::error::{Absent, BadCursor, Unfit};
use control::executions::view;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use store::executions::{self, Execution, Query};
use types::kinds::Job;
use types::parts::PaginationMeta;
use types::wire::{JobExecution, JobExecutionTask};

/// Tasks that the answer about one execution shows; the others are in its list of tasks.
const TASKS_SHOWN: i64 = 100;

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct ExecutionQuery {
    /// Items of a page.
    #[schemars(range(min = 1, max = 100))]
    pub limit: Option<i64>,
    /// How many to skip; in the first version of the interface.
    #[schemars(range(min = 0))]
    pub offset: Option<i64>,
    /// Where to go on: `meta.nextCursor` of the page before.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: Sort,
    /// Text that ids contain.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
}

impl ExecutionQuery {
    fn common(&self) -> ListQuery {
        ListQuery { limit: self.limit, q: self.q.clone(), sort: self.sort, ..ListQuery::default() }
    }

    fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref().filter(|cursor| !cursor.is_empty())
    }

    fn offset(&self) -> Result<i64, control::Error> {
        match self.offset.unwrap_or(0) {
            ..0 => Err(Unfit::Offset.into()),
            offset => Ok(offset),
        }
    }
}

fn absent(name: &str) -> control::Error {
    let name: String = name.chars().take(80).collect();
    Absent::Execution { name }.into()
}

/// The execution that a path names; whether the job is still there does not matter then.
fn find(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &str,
    name: &str,
) -> Result<Execution, control::Error> {
    match executions::find(tx, &context.member.workspace, job, name)? {
        Some(execution) => Ok(execution),
        None => Held::<Job>::get(context, tx, &[], job).and(Err(absent(name))),
    }
}

pub(crate) async fn list(
    call: Call<Member, ExecutionQuery>,
) -> Result<Listing<JobExecution>, Error> {
    let (context, job, asked, version) =
        (call.context(), call.path.at(0).to_owned(), call.query.clone(), call.version);
    let work = move |tx: &mut Tx<'_>| {
        let page = page(&context, tx, &job, &asked)?;
        Ok::<_, control::Error>(match version.has_pages() {
            true => Listing::Page(page),
            false => Listing::Bare(page.data),
        })
    };
    Ok(call.app.store.read(work).await?)
}

fn page(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &str,
    asked: &ExecutionQuery,
) -> Result<Page<JobExecution>, control::Error> {
    let (common, now) = (asked.common(), context.world().now());
    let (limit, text, offset) = (common.size(SMALL_PAGE)?, common.text()?, asked.offset()?);
    let workspace = &context.member.workspace;
    let bound = format!("{workspace}/jobs/{job}/executions?{:?}&{text:?}", asked.sort);
    let (order, mut after) = (asked.sort.into(), None);
    if let Some(cursor) = asked.cursor() {
        let position = context.control.cursors.open(&bound, cursor, now)?;
        after = Some(position.parse().map_err(|_| BadCursor::OtherRelease)?);
    }
    let query =
        Query { workspace, job, text: text.as_deref(), order, after, offset, limit: limit + 1 };
    let mut rows = executions::list(tx, &query)?;
    let total = executions::count(tx, &query)?;
    if total == 0 {
        Held::<Job>::get(context, tx, &[], job)?;
    }
    let has_more = rows.len() as i64 > limit;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next_cursor = match rows.last() {
        Some(last) if has_more => {
            context.control.cursors.sign(&bound, &last.position(order).to_string(), now)
        }
        _ => String::new(),
    };
    let data =
        rows.iter().map(|row| view::execution(context, tx, row)).collect::<Result<_, _>>()?;
    Ok(Page { data, meta: PaginationMeta { has_more, next_cursor, total } })
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<JobExecution>, Error> {
    let (context, job, name) =
        (call.context(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let execution = find(&context, tx, &job, &name)?;
        shown(&context, tx, &execution)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn shown(
    context: &Context,
    tx: &mut Tx<'_>,
    execution: &Execution,
) -> Result<JobExecution, control::Error> {
    let tasks = view::tasks(context, tx, execution, 0, TASKS_SHOWN)?;
    Ok(JobExecution { tasks: Some(tasks), ..view::execution(context, tx, execution)? })
}

/// Lets no further task begin; what runs goes on to its end. Repeating it is harmless.
pub(crate) async fn cancel(call: Call<Member, NoQuery>) -> Result<Reply<JobExecution>, Error> {
    let (context, job, name) =
        (call.context(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let id = find(&context, tx, &job, &name)?.id;
        let cancelled = context.control.queue.cancel(tx, &id)?.ok_or_else(|| absent(&name))?;
        shown(&context, tx, &cancelled)
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn tasks(
    call: Call<Member, ListQuery>,
) -> Result<Reply<Page<JobExecutionTask>>, Error> {
    let (context, job, name, asked) = (
        call.context(),
        call.path.at(0).to_owned(),
        call.path.at(1).to_owned(),
        call.query.clone(),
    );
    let work = move |tx: &mut Tx<'_>| {
        let execution = find(&context, tx, &job, &name)?;
        tasks_page(&context, tx, &execution, &asked)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

/// A page of tasks in their order. A cursor is the index of the next one.
fn tasks_page(
    context: &Context,
    tx: &mut Tx<'_>,
    execution: &Execution,
    asked: &ListQuery,
) -> Result<Page<JobExecutionTask>, control::Error> {
    let (limit, now) = (asked.size(PAGE)?, context.world().now());
    let bound = format!("{}/executions/{}/tasks", execution.workspace, execution.id);
    let from = match asked.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => {
            context.control.cursors.open(&bound, cursor, now)?.parse().unwrap_or(execution.total)
        }
        None => 0,
    };
    let data = view::tasks(context, tx, execution, from, limit)?;
    let next = from + limit;
    let has_more = next < execution.total;
    let next_cursor = if has_more {
        context.control.cursors.sign(&bound, &next.to_string(), now)
    } else {
        String::new()
    };
    Ok(Page { data, meta: PaginationMeta { has_more, next_cursor, total: execution.total } })
}
