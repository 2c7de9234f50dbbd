//! Schedules of one sandbox and of all, and the history of their executions.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::malformed::Malformed;
use crate::http::query::{AgeSort, ListQuery, Sort};
use crate::http::reply::Reply;
use auth::Member;
use control::engine::{self, Among, Listing, Page};
use control::schedule_executions::{self as executions, FiringQuery};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::Timestamp;
use types::kinds::Schedule;
use types::time::{DAY_MS, MINUTE_MS};
use types::wire::{
    SandboxScheduleExecution, SandboxScheduleExecutionStatus, SandboxScheduleMetrics,
};

/// How far back metrics go, and how long their window may be.
const METRICS_DAYS_MAX: i64 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListedType {
    Cron,
    At,
}

impl ListedType {
    /// Returns what occurs in the stored schedules of this type and in no others: in texts that
    /// users write, quotes are escaped, and no other member is named `type`.
    const fn wish(self) -> &'static str {
        match self {
            Self::Cron => r#""type":"cron""#,
            Self::At => r#""type":"at""#,
        }
    }
}

/// A type in the list of one sandbox, where the interface ignores unknown ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TypeFilter {
    Cron,
    At,
    #[serde(other)]
    #[schemars(skip)]
    Any,
}

impl TypeFilter {
    const fn listed(self) -> Option<ListedType> {
        match self {
            Self::Cron => Some(ListedType::Cron),
            Self::At => Some(ListedType::At),
            Self::Any => None,
        }
    }
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

pub(crate) async fn list(call: Call<Member, ScheduleQuery>) -> Result<Listing<Schedule>, Error> {
    let (context, parents, version) = (call.context(), call.path.all(), call.version);
    let ScheduleQuery { limit, cursor, sort, q, kind } = call.query.clone();
    let asked = ListQuery { limit, cursor, sort, q, ..ListQuery::default() };
    let wish = kind.and_then(TypeFilter::listed).map(ListedType::wish);
    let among = Among { parents: Some(parents.clone()), wish };
    let work = move |tx: &mut Tx<'_>| {
        engine::require_parent::<Schedule>(&context, tx, &parents)?;
        engine::list_among(&context, tx, &among, &asked, version)
    };
    Ok(call.app.lists.read(call.who.workspace.as_str(), work).await?)
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct WorkspaceScheduleQuery {
    /// Number of items per page.
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Where to continue: `meta.nextCursor` of the previous page.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: AgeSort,
    /// Text that the id must contain.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
    /// Only schedules of the sandbox with this name.
    pub sandbox: Option<String>,
    /// Only schedules of this type.
    #[serde(rename = "type")]
    pub kind: Option<ListedType>,
}

/// Lists the schedules of all sandboxes.
pub(crate) async fn list_all(
    call: Call<Member, WorkspaceScheduleQuery>,
) -> Result<Listing<Schedule>, Error> {
    let (context, version) = (call.context(), call.version);
    let WorkspaceScheduleQuery { limit, cursor, sort, q, sandbox, kind } = call.query.clone();
    let asked = ListQuery { limit, cursor, sort: sort.into(), q, ..ListQuery::default() };
    let wish = kind.map(ListedType::wish);
    let among = Among { parents: sandbox.map(|name| vec![name]), wish };
    let work = move |tx: &mut Tx<'_>| engine::list_among(&context, tx, &among, &asked, version);
    Ok(call.app.lists.read(call.who.workspace.as_str(), work).await?)
}

/// Lists the executions of the schedules of one sandbox, newest first.
pub(crate) async fn executions(
    call: Call<Member, ListQuery>,
) -> Result<Reply<Page<SandboxScheduleExecution>>, Error> {
    let (context, name, asked) = (call.context(), call.path.name().to_owned(), call.query.clone());
    let work = move |tx: &mut Tx<'_>| executions::of_sandbox(&context, tx, &name, &asked);
    Ok(Reply::of(&call.app.store.read(work).await?))
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct ExecutionQuery {
    /// Number of items per page.
    #[schemars(range(min = 1))]
    pub limit: Option<i64>,
    /// Where to continue: `meta.nextCursor` of the previous page.
    pub cursor: Option<String>,
    #[serde(default)]
    pub sort: AgeSort,
    /// Text that the id of the schedule or the name of the process must contain.
    #[schemars(length(max = 200))]
    pub q: Option<String>,
    /// Only executions whose command the sandbox took, or did not take.
    pub status: Option<SandboxScheduleExecutionStatus>,
    /// Only executions in the sandbox with this name.
    pub sandbox: Option<String>,
    /// Only executions of schedules with this id.
    pub schedule: Option<String>,
    /// Earliest time of creation.
    pub since: Option<String>,
    /// Latest time of creation.
    pub until: Option<String>,
}

/// Lists the executions of the schedules of all sandboxes.
pub(crate) async fn all_executions(
    call: Call<Member, ExecutionQuery>,
) -> Result<Reply<Page<SandboxScheduleExecution>>, Error> {
    let (context, query) = (call.context(), call.query.clone());
    let (limit, cursor, q) = (query.limit, query.cursor, query.q);
    let asked = FiringQuery {
        list: ListQuery { limit, cursor, q, ..ListQuery::default() },
        sort: query.sort,
        status: query.status,
        sandbox: query.sandbox,
        schedule: query.schedule,
        since: time("since", query.since.as_deref())?,
        until: time("until", query.until.as_deref())?,
    };
    let work = move |tx: &mut Tx<'_>| executions::of_workspace(&context, tx, &asked);
    Ok(Reply::of(&call.app.store.read(work).await?))
}

#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub(crate) struct MetricsQuery {
    /// Start of the window, inclusive: a time in the last 7 days, of which the minute counts.
    /// Default: a day before `until`.
    pub since: Option<String>,
    /// End of the window, exclusive. Default: the minute that goes on now.
    pub until: Option<String>,
}

impl MetricsQuery {
    fn window(&self, now: Timestamp) -> Result<(Timestamp, Timestamp), Error> {
        let minute = |time: Timestamp| time.plus_ms(-time.ms().rem_euclid(MINUTE_MS));
        let until = minute(time("until", self.until.as_deref())?.unwrap_or(now));
        let since = time("since", self.since.as_deref())?;
        let since = since.map_or_else(|| until.plus_ms(-DAY_MS), minute);
        let longest = METRICS_DAYS_MAX * DAY_MS;
        let why = if since < minute(now).plus_ms(-longest) {
            "must be within the last 7 days"
        } else if since >= until {
            "must be at least a minute before `until`"
        } else if until.since(since) > longest {
            "must be at most 7 days before `until`"
        } else {
            return Ok((since, until));
        };
        Err(Malformed::Query { name: "since".to_owned(), why: why.to_owned() }.into())
    }
}

/// Says how often the schedules of all sandboxes started something.
pub(crate) async fn metrics(
    call: Call<Member, MetricsQuery>,
) -> Result<Reply<SandboxScheduleMetrics>, Error> {
    let (since, until) = call.query.window(call.app.world.now())?;
    let context = call.context();
    let work = move |tx: &mut Tx<'_>| executions::metrics(&context, tx, since, until);
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, Error> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<Timestamp>() {
        Ok(time) => Ok(Some(time)),
        Err(error) => {
            let (name, why) = (name.to_owned(), error.to_string());
            Err(Malformed::Query { name, why }.into())
        }
    }
}
