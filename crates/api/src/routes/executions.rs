//! Executions of jobs: lists, single executions, their tasks, and cancelling.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::query::{ListQuery, NoQuery, Sort};
use crate::http::reply::Reply;
use auth::Member;
use control::engine::{Listing, Page};
use control::executions::history;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::ApiVersion;
use types::wire::{JobExecution, JobExecutionTask};

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct ExecutionQuery {
    /// Number of items per page.
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Number of items to skip; only in the first version of the interface.
    #[schemars(range(min = 0))]
    pub offset: Option<i64>,
    /// Where to continue: `meta.nextCursor` of the previous page.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: Sort,
    /// Text that the id must contain.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
}

impl ExecutionQuery {
    fn common(&self) -> ListQuery {
        let (cursor, q) = (self.cursor.clone(), self.q.clone());
        ListQuery { limit: self.limit, cursor, sort: self.sort, q, ..ListQuery::default() }
    }
}

pub(crate) async fn list(
    call: Call<Member, ExecutionQuery>,
) -> Result<Listing<JobExecution>, Error> {
    let (context, job) = (call.context(), call.path.at(0).to_owned());
    let (asked, offset) = (call.query.common(), call.query.offset);
    let work = move |tx: &mut Tx<'_>| history::page(&context, tx, &job, &asked, offset);
    let page = call.app.lists.read(call.who.workspace.as_str(), work).await?;
    Ok(listing(page, call.version))
}

fn listing<T>(page: Page<T>, version: ApiVersion) -> Listing<T> {
    match version.has_pages() {
        true => Listing::Page(page),
        false => Listing::Bare(page.data),
    }
}

/// Returns the job and the execution that a path names.
fn names<Q>(call: &Call<Member, Q>) -> (String, String) {
    (call.path.at(0).to_owned(), call.path.at(1).to_owned())
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<JobExecution>, Error> {
    let (context, (job, name)) = (call.context(), names(&call));
    let work = move |tx: &mut Tx<'_>| history::get(&context, tx, &job, &name);
    Ok(Reply::of(&call.app.store.read(work).await?))
}

/// Prevents further tasks from starting; running tasks continue to their end. Repeating it is
/// harmless.
pub(crate) async fn cancel(call: Call<Member, NoQuery>) -> Result<Reply<JobExecution>, Error> {
    let (context, (job, name)) = (call.context(), names(&call));
    let work = move |tx: &mut Tx<'_>| history::cancel(&context, tx, &job, &name);
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn tasks(
    call: Call<Member, ListQuery>,
) -> Result<Listing<JobExecutionTask>, Error> {
    let (context, (job, name), asked) = (call.context(), names(&call), call.query.clone());
    let work = move |tx: &mut Tx<'_>| history::tasks(&context, tx, &job, &name, &asked);
    let page = call.app.lists.read(call.who.workspace.as_str(), work).await?;
    Ok(listing(page, call.version))
}
