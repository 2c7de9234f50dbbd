//! Usage of models: checks of the queries.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::malformed::ModelUsageRule;
use crate::http::reply::Reply;
use auth::Member;
use control::engine::Held;
use control::models::usage::{self, ROWS_MAX, UsageQuestion};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::Timestamp;
use types::kinds::Model;
use types::time::DAY_MS;
use types::wire::{ModelUsage, ModelUsageBy, ModelUsageResolution};

const HOURLY_DAYS_MAX: i64 = 31;
/// A little longer than usage is kept.
const DAYS_MAX: i64 = 401;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ModelUsageQuery {
    /// Start of the window, inclusive: RFC 3339, UTC. Default: the start of the month. Hours that
    /// are only partly in the window count as a whole.
    pub start: Option<String>,
    /// End of the window, exclusive. Default: now.
    pub end: Option<String>,
    /// Some of `model`, `key`, `endUser`, `tag`, `provider` and `providerModel`, separated by
    /// commas.
    pub group_by: Option<String>,
    /// `hourly` (at most 31 days), `daily` or `total`. Default: `total`.
    pub resolution: Option<String>,
}

fn time(
    name: &'static str,
    text: Option<&str>,
    otherwise: Timestamp,
) -> Result<Timestamp, ModelUsageRule> {
    let Some(text) = text else { return Ok(otherwise) };
    let is_utc = text.ends_with('Z') || text.ends_with("+00:00");
    let parsed = text.parse().ok().filter(|_| is_utc);
    parsed.ok_or(ModelUsageRule::Time { name })
}

fn groups(asked: Option<&str>) -> Result<Vec<ModelUsageBy>, ModelUsageRule> {
    let names = asked.into_iter().flat_map(|list| list.split(',')).map(str::trim);
    let mut groups = Vec::new();
    for name in names.filter(|name| !name.is_empty()) {
        match ModelUsageBy::parse(name) {
            Some(by) if groups.contains(&by) => return Err(ModelUsageRule::GroupTwice),
            Some(by) => groups.push(by),
            None => {
                let known = ModelUsageBy::ALL.map(ModelUsageBy::name).join(", ");
                return Err(ModelUsageRule::Group { known });
            }
        }
    }
    Ok(groups)
}

/// Builds the query of a request, if it makes sense.
fn asked(
    call: &Call<Member, ModelUsageQuery>,
    model: Option<String>,
) -> Result<UsageQuestion, ModelUsageRule> {
    let (query, now) = (&call.query, call.app.world.now());
    let end = time("end", query.end.as_deref(), now)?;
    let start = time("start", query.start.as_deref(), end.plus_ms(-1).month().0)?;
    let resolution = query.resolution.as_deref().map(ModelUsageResolution::parse);
    let resolution = resolution.unwrap_or(Some(ModelUsageResolution::Total));
    let resolution = resolution.ok_or(ModelUsageRule::Resolution)?;
    let days_max = match resolution {
        ModelUsageResolution::Hourly => HOURLY_DAYS_MAX,
        ModelUsageResolution::Daily | ModelUsageResolution::Total => DAYS_MAX,
    };
    if start >= end {
        return Err(ModelUsageRule::Window);
    }
    if end.since(start) > days_max * DAY_MS {
        return Err(ModelUsageRule::LongWindow { days_max });
    }
    let group_by = groups(query.group_by.as_deref())?;
    Ok(UsageQuestion {
        workspace: call.who.workspace.clone(),
        model,
        start,
        end,
        group_by,
        resolution,
    })
}

fn few(answer: Option<ModelUsage>) -> Result<Reply<ModelUsage>, Error> {
    let answer = answer.ok_or(ModelUsageRule::ManyRows { max: ROWS_MAX })?;
    Ok(Reply::of(&answer))
}

/// Returns the usage of one model of the workspace.
pub(crate) async fn of_model(
    call: Call<Member, ModelUsageQuery>,
) -> Result<Reply<ModelUsage>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    let asked = asked(&call, Some(name.clone()))?;
    let work = move |tx: &mut Tx<'_>| {
        Held::<Model>::get(&context, tx, &[], &name)?;
        Ok::<_, Error>(usage::answer(tx, &asked)?)
    };
    few(call.app.store.read(work).await?)
}

/// Returns the usage of all models of the workspace, including deleted ones.
pub(crate) async fn of_all(
    call: Call<Member, ModelUsageQuery>,
) -> Result<Reply<ModelUsage>, Error> {
    let asked = asked(&call, None)?;
    let work = move |tx: &mut Tx<'_>| usage::answer(tx, &asked);
    few(call.app.store.read(work).await?)
}
