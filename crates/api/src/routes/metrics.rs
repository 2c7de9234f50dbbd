//! Cost and usage: checks of the queries. The answers come from the meter.

use crate::http::call::{Call, Person};
use crate::http::error::Error;
use crate::http::malformed::MetricsRule;
use crate::http::reply::Reply;
use control::billing::{self, prices};
use control::error::BadCursor;
use meter::{Filter, Key, Question, Window};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeSet;
use store::Tx;
use types::ids::AccountId;
use types::usage::{Dimension, ResourceType};
use types::wire::{AccountMetrics, GroupBy, MetricsValues, Resolution};
use types::{Scope, Timestamp};

const DAY_S: i64 = 86_400;
const DIMENSIONS_MAX: usize = 3;
/// Most groups per page.
const PAGE_MAX: usize = 100;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MetricsQuery {
    /// Start of the window, inclusive: RFC 3339, UTC. Required.
    pub start_time: Option<String>,
    /// End of the window, exclusive. Required.
    pub end_time: Option<String>,
    /// `hourly`, `daily`, `weekly` or `monthly`. Default: depends on the length of the window.
    pub resolution: Option<String>,
    /// Up to three dimensions, separated by commas.
    pub group_by: Option<String>,
    /// Only this workspace; for administrators of the account.
    pub workspace: Option<String>,
    pub resource_type: Option<String>,
    pub resource_name: Option<String>,
    pub resource_uuid: Option<String>,
    pub billing_dimension: Option<String>,
    /// Number of groups per page, at most 100.
    pub limit: Option<i64>,
    pub cursor: Option<String>,
    /// Not supported.
    #[schemars(skip)]
    pub label: Option<String>,
    /// Not supported.
    #[schemars(skip)]
    pub unit: Option<String>,
}

/// The time window of an enum query.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WindowQuery {
    /// Start of the window, inclusive: RFC 3339, UTC. Required.
    pub start_time: Option<String>,
    /// End of the window, exclusive. Required.
    pub end_time: Option<String>,
}

fn window(start: Option<&str>, end: Option<&str>) -> Result<Window, Error> {
    let (start, end) = (utc("startTime", start)?, utc("endTime", end)?);
    match start < end {
        true => Ok(Window { start, end }),
        false => Err(MetricsRule::Window.into()),
    }
}

/// Returns the length of a window in seconds, rounded up.
fn length_s(window: &Window) -> i64 {
    (window.end.since(window.start) + 999) / 1000
}

fn utc(name: &'static str, text: Option<&str>) -> Result<Timestamp, MetricsRule> {
    let rule = || MetricsRule::Time { name };
    let text = text.ok_or(MetricsRule::NoTime { name })?;
    if !(text.ends_with('Z') || text.ends_with("+00:00")) {
        return Err(rule());
    }
    text.parse().map_err(|_| rule())
}

/// Returns the requested resolution, or the one that suits the window.
fn resolution(asked: Option<&str>, length_s: i64) -> Result<Resolution, Error> {
    let (resolution, days_max) = match asked {
        None if length_s < 7 * DAY_S => return Ok(Resolution::Hourly),
        None if length_s < 90 * DAY_S => return Ok(Resolution::Daily),
        None if length_s < 365 * DAY_S => return Ok(Resolution::Weekly),
        None => return Ok(Resolution::Monthly),
        Some("hourly") => (Resolution::Hourly, 7),
        Some("daily") => (Resolution::Daily, 90),
        // A leap year still counts as a year.
        Some("weekly") => (Resolution::Weekly, 366),
        Some("monthly") => return Ok(Resolution::Monthly),
        Some(_) => {
            return Err(MetricsRule::Resolution.into());
        }
    };
    if length_s > days_max * DAY_S {
        return Err(MetricsRule::LongWindow { days_max }.into());
    }
    Ok(resolution)
}

fn dimensions(asked: Option<&str>) -> Result<Vec<GroupBy>, Error> {
    let names: Vec<&str> =
        asked.into_iter().flat_map(|list| list.split(',')).map(str::trim).collect();
    let known = GroupBy::ALL.map(GroupBy::name).join(", ");
    let parse = |name: &&str| {
        GroupBy::parse(name).ok_or_else(|| MetricsRule::Dimension { known: known.clone() })
    };
    let mut dimensions = names.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if dimensions.len() > DIMENSIONS_MAX {
        return Err(MetricsRule::ManyDimensions { max: DIMENSIONS_MAX }.into());
    }
    dimensions.sort_unstable();
    dimensions.dedup();
    if dimensions.len() != names.len() {
        return Err(MetricsRule::DimensionTwice.into());
    }
    Ok(dimensions)
}

/// Returns the largest number of steps that a series can have.
fn steps(window: &Window, resolution: Resolution) -> usize {
    let step_s = match resolution {
        Resolution::Hourly => 3600,
        Resolution::Daily => DAY_S,
        Resolution::Weekly => 7 * DAY_S,
        // The shortest month.
        Resolution::Monthly => 28 * DAY_S,
    };
    // The first and the last step may be only partly within the window.
    usize::try_from(length_s(window) / step_s + 2).unwrap_or(usize::MAX)
}

/// Returns the number of groups per page: as requested, but less if their series would take too
/// much memory.
fn page(asked: Option<i64>, steps: usize, points_max: usize) -> Result<usize, Error> {
    let asked = match asked {
        None => PAGE_MAX,
        Some(limit) if limit >= 1 => usize::try_from(limit).unwrap_or(PAGE_MAX).min(PAGE_MAX),
        Some(_) => return Err(MetricsRule::Limit.into()),
    };
    match points_max / steps {
        0 => Err(MetricsRule::ManySteps { steps, max: points_max }.into()),
        fitting => Ok(asked.min(fitting)),
    }
}

/// Returns the account that a call asks about. Cost, and the names of what was used, span all kinds
/// and workspaces, so a token needs the scope `admin` as it does for prices and budgets.
fn account<Q>(call: &Call<Person, Q>) -> Result<AccountId, Error> {
    call.who.0.may(&[Scope::Admin])?;
    Ok(billing::account(&call.who.0, call.path.name())?)
}

/// Returns the workspaces of the account whose usage the caller may see; `None` means all, for
/// administrators, others see those that they belong to. Names of resources reveal the names of
/// their workspaces, and totals would reveal what other workspaces cost.
fn within(who: &Person, account: &AccountId) -> Option<BTreeSet<String>> {
    let own = who.0.memberships.iter().filter(|membership| membership.account == *account);
    (!who.0.administers(account))
        .then(|| own.map(|membership| membership.workspace_name.clone()).collect())
}

fn filter(asked: &MetricsQuery, within: Option<BTreeSet<String>>) -> Result<Filter, Error> {
    let types =
        || ResourceType::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ");
    let known_type = |name: &String| {
        ResourceType::parse(name).ok_or_else(|| MetricsRule::ResourceType { known: types() })
    };
    let known_dimension = |name: &String| {
        let rule = || MetricsRule::BillingDimension { known: prices::dimensions() };
        Dimension::parse(name).ok_or_else(rule)
    };
    Ok(Filter {
        within,
        workspace: asked.workspace.clone(),
        resource_type: asked.resource_type.as_ref().map(known_type).transpose()?,
        resource_name: asked.resource_name.clone(),
        resource_uuid: asked.resource_uuid.clone(),
        dimension: asked.billing_dimension.as_ref().map(known_dimension).transpose()?,
    })
}

/// Describes the query without its page, which its cursors are bound to.
fn bound(question: &Question) -> String {
    let Question { account, window, resolution, group_by, filter, .. } = question;
    format!(
        "metrics {account} {} {} {resolution:?} {group_by:?} {filter:?}",
        window.start, window.end
    )
}

/// Builds the query of a request, if the caller is allowed to make it.
fn question(call: &Call<Person, MetricsQuery>) -> Result<Question, Error> {
    let (account, asked) = (account(call)?, &call.query);
    if asked.label.is_some() || asked.unit.is_some() {
        return Err(MetricsRule::Unsupported.into());
    }
    let window = window(asked.start_time.as_deref(), asked.end_time.as_deref())?;
    let resolution = resolution(asked.resolution.as_deref(), length_s(&window))?;
    let limit = page(asked.limit, steps(&window, resolution), call.app.settings.bill.points_max)?;
    let group_by = dimensions(asked.group_by.as_deref())?;
    let filter = filter(asked, within(&call.who, &account))?;
    let splits = asked.workspace.is_some() || group_by.contains(&GroupBy::Workspace);
    if splits && !call.who.0.administers(&account) {
        return Err(auth::Denied::NotAccountAdmin.into());
    }
    let mut question =
        Question { account, window, resolution, group_by, filter, limit, after: None };
    if let Some(cursor) = &asked.cursor {
        let position = call.app.cursors.open(&bound(&question), cursor, call.app.world.now())?;
        // We signed it, so only another release can have written it in another form.
        let key = serde_json::from_str::<Key>(&position);
        question.after = Some(key.map_err(|_| control::Error::from(BadCursor::OtherRelease))?);
    }
    Ok(question)
}

pub(crate) async fn query(
    call: Call<Person, MetricsQuery>,
) -> Result<Reply<AccountMetrics>, Error> {
    let (question, now) = (question(&call)?, call.app.world.now());
    let asked = question.clone();
    let work = move |tx: &mut Tx<'_>| {
        let book = billing::book(tx, &asked.account)?;
        Ok(meter::answer(tx, &asked, &book, now)?)
    };
    let answer = call.app.lists.read(question.account.as_str(), work).await?;
    let position = answer.next.as_ref().map(control::json::text);
    let cursor = position.map(|position| call.app.cursors.sign(&bound(&question), &position, now));
    Ok(Reply::of(&answer.wire(&question, cursor)))
}

pub(crate) async fn group_by(call: Call<Person>) -> Result<Reply<MetricsValues>, Error> {
    billing::account(&call.who.0, call.path.name())?;
    Ok(Reply::of(&MetricsValues {
        values: GroupBy::ALL.map(|dimension| dimension.name().to_owned()).to_vec(),
    }))
}

pub(crate) async fn resource_types(
    call: Call<Person, WindowQuery>,
) -> Result<Reply<MetricsValues>, Error> {
    let (account, asked) = (account(&call)?, &call.query);
    let window = window(asked.start_time.as_deref(), asked.end_time.as_deref())?;
    let now = call.app.world.now();
    let filter = Filter { within: within(&call.who, &account), ..Filter::default() };
    let sharer = account.clone();
    let types = move |tx: &mut Tx<'_>| {
        Ok(meter::resource_types(tx, &account, window, filter.clone(), now)?)
    };
    let found = call.app.lists.read(sharer.as_str(), types).await?;
    Ok(Reply::of(&MetricsValues {
        values: found.iter().map(|known| known.name().to_owned()).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolution_follows_the_window() {
        let chosen = |days: i64| resolution(None, days * DAY_S).unwrap();
        assert_eq!(
            [chosen(6), chosen(7), chosen(90), chosen(365)],
            [Resolution::Hourly, Resolution::Daily, Resolution::Weekly, Resolution::Monthly]
        );
        assert!(resolution(Some("hourly"), 7 * DAY_S).is_ok());
        assert!(resolution(Some("hourly"), 7 * DAY_S + 1).is_err());
    }

    #[test]
    fn dimensions_are_few_known_and_different() {
        assert_eq!(
            dimensions(Some("resource_name,workspace")).unwrap(),
            dimensions(Some("workspace,resource_name")).unwrap()
        );
        for bad in [
            "",
            "label",
            "workspace,workspace",
            "workspace,resource_type,resource_name,resource_uuid",
        ] {
            assert!(dimensions(Some(bad)).is_err(), "{bad}");
        }
    }
}
