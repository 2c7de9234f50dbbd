//! Schedules of sandboxes, and the history of their executions.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::query::{ListQuery, SMALL_PAGE, Sort};
use crate::http::reply::Reply;
use auth::Member;
use control::Context;
use control::engine::{self, Held, Listing, Page};
use control::kinds::schedule;
use control::pager::{self, Pager, TimePosition};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use store::firings::{self, Firing};
use types::kinds::schedule::ScheduleType;
use types::kinds::{Sandbox, Schedule};
use types::wire::SandboxScheduleExecution;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TypeFilter {
    Cron,
    At,
    /// The interface ignores unknown types.
    #[serde(other)]
    #[schemars(skip)]
    Any,
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct ScheduleQuery {
    /// Number of items per page.
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Where to continue: `meta.nextCursor` of the previous page.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: Sort,
    /// Text that the id must contain.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
    /// Only schedules of this type.
    #[serde(rename = "type")]
    pub kind: Option<TypeFilter>,
}

impl ScheduleQuery {
    fn common(&self) -> ListQuery {
        let (cursor, q) = (self.cursor.clone(), self.q.clone());
        ListQuery { limit: self.limit, cursor, sort: self.sort, q, ..ListQuery::default() }
    }

    fn takes(&self, schedule: &Schedule) -> bool {
        match self.kind {
            None | Some(TypeFilter::Any) => true,
            Some(TypeFilter::Cron) => schedule.kind == Some(ScheduleType::Cron),
            Some(TypeFilter::At) => schedule.kind == Some(ScheduleType::At),
        }
    }
}

pub(crate) async fn list(call: Call<Member, ScheduleQuery>) -> Result<Listing<Schedule>, Error> {
    let (context, parents, query, version) =
        (call.context(), call.path.all(), call.query.clone(), call.version);
    let work = move |tx: &mut Tx<'_>| match query.kind {
        None | Some(TypeFilter::Any) => {
            engine::list(&context, tx, &parents, &query.common(), version)
        }
        Some(_) => {
            // A sandbox has few schedules, so all are read and filtered by type here.
            let whole =
                ListQuery { limit: Some(schedule::SCHEDULES_MAX), cursor: None, ..query.common() };
            let mut all = match engine::list::<Schedule>(&context, tx, &parents, &whole, version)? {
                Listing::Bare(all) => all,
                Listing::Page(page) => page.data,
            };
            all.retain(|schedule| query.takes(schedule));
            if version.has_pages() {
                cut(&context, &parents, all, &query).map(Listing::Page)
            } else {
                Ok(Listing::Bare(all))
            }
        }
    };
    Ok(call.app.store.read(work).await?)
}

/// Returns the requested page of all matches. Its cursor counts matches.
fn cut(
    context: &Context,
    parents: &[String],
    all: Vec<Schedule>,
    query: &ScheduleQuery,
) -> Result<Page<Schedule>, control::Error> {
    let (workspace, sandbox) = (&context.member.workspace, parents.join("/"));
    let list =
        format!("{workspace}/schedules/{sandbox}?{:?}&{:?}&{:?}", query.kind, query.sort, query.q);
    let pager = Pager::new(context, list);
    let start: usize = pager.after(query.cursor.as_deref())?.unwrap_or(0);
    let size = pager::size(query.common().size(SMALL_PAGE)?);
    let next = Some(start.saturating_add(size)).filter(|next| *next < all.len());
    let meta = pager.meta(next, all.len() as i64);
    Ok(Page { data: all.into_iter().skip(start).take(size).collect(), meta })
}

/// Lists the executions of schedules, newest first.
pub(crate) async fn executions(
    call: Call<Member, ListQuery>,
) -> Result<Reply<Page<SandboxScheduleExecution>>, Error> {
    let size = call.query.size(SMALL_PAGE)?;
    let (context, name, cursor) =
        (call.context(), call.path.name().to_owned(), call.query.cursor.clone());
    let work = move |tx: &mut Tx<'_>| {
        let sandbox = Held::<Sandbox>::get(&context, tx, &[], &name)?.row.id;
        let list = format!("{}/schedule-executions/{sandbox}", context.member.workspace);
        let pager = Pager::new(&context, list);
        let after: Option<TimePosition> = pager.after(cursor.as_deref())?;
        let after = after.as_ref().map(|after| (after.at, after.id.as_str()));
        // One more than requested, to know whether there is another page.
        let found = firings::list(tx, &sandbox, after, size + 1)?;
        let total = firings::count(tx, &sandbox)?;
        let at = |one: &Firing| TimePosition { at: one.created_at, id: one.id.clone() };
        let Page { data, meta } = pager.page(found, size, total, at);
        Ok::<_, control::Error>(Page { data: data.into_iter().map(execution).collect(), meta })
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn execution(firing: Firing) -> SandboxScheduleExecution {
    let outcome = firing.outcome;
    SandboxScheduleExecution {
        created_at: Some(firing.created_at),
        id: Some(firing.id),
        schedule_id: Some(firing.schedule),
        timeout: firing.timeout_s,
        executed_at: outcome.as_ref().map(|outcome| outcome.executed_at),
        process_name: outcome.as_ref().and_then(|outcome| outcome.process_name.clone()),
        status_code: outcome.as_ref().map(|outcome| outcome.status_code),
        error: outcome.and_then(|outcome| outcome.error),
    }
}
