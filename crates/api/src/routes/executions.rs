//! Executions of jobs. None can be started before the job engine runs, so none is found.

use crate::call::Call;
use crate::engine::{Held, Listing, Page};
use crate::error::Error;
use crate::query::{ListQuery, NoQuery, PAGE, SMALL_PAGE, Sort};
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use types::kinds::Job;
use types::parts::PaginationMeta;
use types::wire::{JobExecution, JobExecutionTask};

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ExecutionQuery {
    /// Items of a page. More than the maximum counts as the maximum.
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
    fn check(&self) -> Result<(), Error> {
        let common = ListQuery { limit: self.limit, q: self.q.clone(), sort: self.sort, ..ListQuery::default() };
        common.size(SMALL_PAGE)?;
        common.text()?;
        match (self.offset, self.cursor.as_deref().filter(|cursor| !cursor.is_empty())) {
            (Some(..0), _) => Err(Error::Malformed("`offset` must be at least 0".into())),
            (_, Some(_)) => Err(Error::Malformed("`cursor` is not one that this list gave out".into())),
            _ => Ok(()),
        }
    }
}

async fn require_job<Q: Send, B: Send>(call: &Call<Member, Q, B>) -> Result<(), Error> {
    let (desk, job) = (call.desk(), call.path.at(0).to_owned());
    call.app.store.read(move |tx| Held::<Job>::get(&desk, tx, &[], &job).map(drop)).await
}

fn absent<Q, B>(call: &Call<Member, Q, B>) -> Error {
    let id: String = call.path.at(1).chars().take(80).collect();
    Error::NotFound(format!("the job has no execution `{id}`"))
}

pub(crate) async fn list(call: Call<Member, ExecutionQuery>) -> Result<Listing<JobExecution>, Error> {
    call.query.check()?;
    require_job(&call).await?;
    Ok(match call.version.has_pages() {
        true => Listing::Page(Page { data: Vec::new(), meta: PaginationMeta::default() }),
        false => Listing::Bare(Vec::new()),
    })
}

pub(crate) async fn get(call: Call<Member>) -> Result<Reply<JobExecution>, Error> {
    require_job(&call).await?;
    Err(absent(&call))
}

pub(crate) async fn cancel(call: Call<Member, NoQuery>) -> Result<Reply<JobExecution>, Error> {
    require_job(&call).await?;
    Err(absent(&call))
}

pub(crate) async fn tasks(call: Call<Member, ListQuery>) -> Result<Reply<Page<JobExecutionTask>>, Error> {
    call.query.size(PAGE)?;
    require_job(&call).await?;
    Err(absent(&call))
}
