//! Executions of jobs: lists, one of them, its tasks, and the way to cancel it. History outlives
//! the job for a while.

use crate::call::Call;
use crate::engine::{Desk, Held, Listing, Page};
use crate::error::Error;
use crate::executions::view;
use crate::query::{ListQuery, NoQuery, PAGE, SMALL_PAGE, Sort};
use crate::reply::Reply;
use auth::Member;
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

    fn offset(&self) -> Result<i64, Error> {
        match self.offset.unwrap_or(0) {
            ..0 => Err(Error::Malformed("`offset` must be at least 0".into())),
            offset => Ok(offset),
        }
    }
}

fn absent(name: &str) -> Error {
    let name: String = name.chars().take(80).collect();
    Error::NotFound(format!("the job has no execution `{name}`"))
}

/// The execution that a path names; whether the job is still there does not matter then.
fn find(desk: &Desk, tx: &mut Tx<'_>, job: &str, name: &str) -> Result<Execution, Error> {
    match executions::find(tx, &desk.member.workspace, job, name)? {
        Some(execution) => Ok(execution),
        None => Held::<Job>::get(desk, tx, &[], job).and(Err(absent(name))),
    }
}

pub(crate) async fn list(
    call: Call<Member, ExecutionQuery>,
) -> Result<Listing<JobExecution>, Error> {
    let (desk, job, asked, version) =
        (call.desk(), call.path.at(0).to_owned(), call.query.clone(), call.version);
    let work = move |tx: &mut Tx<'_>| {
        let page = page(&desk, tx, &job, &asked)?;
        Ok(if version.has_pages() { Listing::Page(page) } else { Listing::Bare(page.data) })
    };
    call.app.store.read(work).await
}

fn page(
    desk: &Desk,
    tx: &mut Tx<'_>,
    job: &str,
    asked: &ExecutionQuery,
) -> Result<Page<JobExecution>, Error> {
    let (common, now) = (asked.common(), desk.world().now());
    let (limit, text, offset) = (common.size(SMALL_PAGE)?, common.text()?, asked.offset()?);
    let workspace = &desk.member.workspace;
    let bound = format!("{workspace}/jobs/{job}/executions?{:?}&{text:?}", asked.sort);
    let (order, mut after) = (asked.sort.into(), None);
    if let Some(cursor) = asked.cursor() {
        let position = desk.app.cursors.open(&bound, cursor, now)?;
        after = Some(
            position
                .parse()
                .map_err(|_| Error::Malformed("`cursor` is not one of this list".into()))?,
        );
    }
    let query =
        Query { workspace, job, text: text.as_deref(), order, after, offset, limit: limit + 1 };
    let mut rows = executions::list(tx, &query)?;
    let total = executions::count(tx, &query)?;
    if total == 0 {
        Held::<Job>::get(desk, tx, &[], job)?;
    }
    let has_more = rows.len() as i64 > limit;
    rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let next_cursor = match rows.last() {
        Some(last) if has_more => {
            desk.app.cursors.sign(&bound, &last.position(order).to_string(), now)
        }
        _ => String::new(),
    };
    let data = rows.iter().map(|row| view::execution(desk, tx, row)).collect::<Result<_, _>>()?;
    Ok(Page { data, meta: PaginationMeta { has_more, next_cursor, total } })
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<JobExecution>, Error> {
    let (desk, job, name) = (call.desk(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let execution = find(&desk, tx, &job, &name)?;
        shown(&desk, tx, &execution)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn shown(desk: &Desk, tx: &mut Tx<'_>, execution: &Execution) -> Result<JobExecution, Error> {
    let tasks = view::tasks(desk, tx, execution, 0, TASKS_SHOWN)?;
    Ok(JobExecution { tasks: Some(tasks), ..view::execution(desk, tx, execution)? })
}

/// Lets no further task begin; what runs goes on to its end. Repeating it is harmless.
pub(crate) async fn cancel(call: Call<Member, NoQuery>) -> Result<Reply<JobExecution>, Error> {
    let (desk, job, name) = (call.desk(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let id = find(&desk, tx, &job, &name)?.id;
        let cancelled = desk.app.queue.cancel(tx, &id)?.ok_or_else(|| absent(&name))?;
        shown(&desk, tx, &cancelled)
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn tasks(
    call: Call<Member, ListQuery>,
) -> Result<Reply<Page<JobExecutionTask>>, Error> {
    let (desk, job, name, asked) =
        (call.desk(), call.path.at(0).to_owned(), call.path.at(1).to_owned(), call.query.clone());
    let work = move |tx: &mut Tx<'_>| {
        let execution = find(&desk, tx, &job, &name)?;
        tasks_page(&desk, tx, &execution, &asked)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

/// A page of tasks in their order. A cursor is the index of the next one.
fn tasks_page(
    desk: &Desk,
    tx: &mut Tx<'_>,
    execution: &Execution,
    asked: &ListQuery,
) -> Result<Page<JobExecutionTask>, Error> {
    let (limit, now) = (asked.size(PAGE)?, desk.world().now());
    let bound = format!("{}/executions/{}/tasks", execution.workspace, execution.id);
    let from = match asked.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => {
            desk.app.cursors.open(&bound, cursor, now)?.parse().unwrap_or(execution.total)
        }
        None => 0,
    };
    let data = view::tasks(desk, tx, execution, from, limit)?;
    let next = from + limit;
    let has_more = next < execution.total;
    let next_cursor = if has_more {
        desk.app.cursors.sign(&bound, &next.to_string(), now)
    } else {
        String::new()
    };
    Ok(Page { data, meta: PaginationMeta { has_more, next_cursor, total: execution.total } })
}
