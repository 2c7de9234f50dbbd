//! Cost and usage: the rules of the questions. The answers come with the meter.

use crate::call::{Call, Person};
use crate::error::Error;
use crate::missing::Missing;
use crate::reply::Reply;
use schemars::JsonSchema;
use serde::Deserialize;
use types::Timestamp;
use types::ids::AccountId;
use types::wire::{AccountMetrics, GroupBy, MetricsValues, Resolution};

const DAY_S: i64 = 86_400;
const DIMENSIONS_MAX: usize = 3;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "declared by the interface; the filters are read by the meter")]
pub(crate) struct MetricsQuery {
    /// Start of the window, inclusive: RFC 3339, UTC. Required.
    pub start_time: Option<String>,
    /// End of the window, exclusive. Required.
    pub end_time: Option<String>,
    /// `hourly`, `daily`, `weekly` or `monthly`; by the length of the window when absent.
    pub resolution: Option<String>,
    /// Up to three dimensions, separated by commas.
    pub group_by: Option<String>,
    /// Only one workspace; for administrators of the account.
    pub workspace: Option<String>,
    pub resource_type: Option<String>,
    pub resource_name: Option<String>,
    pub resource_uuid: Option<String>,
    pub billing_dimension: Option<String>,
    /// Groups of a page. More than 100 counts as 100.
    pub limit: Option<i64>,
    pub cursor: Option<String>,
    /// Not supported.
    #[schemars(skip)]
    pub label: Option<String>,
    /// Not supported.
    #[schemars(skip)]
    pub unit: Option<String>,
}

/// A window in time.
struct Window {
    start: Timestamp,
    end: Timestamp,
}

impl Window {
    fn parse(start: Option<&str>, end: Option<&str>) -> Result<Self, Error> {
        let (start, end) = (utc("startTime", start)?, utc("endTime", end)?);
        if end <= start {
            return Err(Error::Malformed("`endTime` must be after `startTime`".into()));
        }
        Ok(Self { start, end })
    }

    fn length_s(&self) -> i64 {
        self.end.since(self.start) / 1000
    }
}

fn utc(name: &str, text: Option<&str>) -> Result<Timestamp, Error> {
    let rule =
        || Error::Malformed(format!("`{name}` is required: an RFC 3339 time in UTC such as `2026-04-16T00:00:00Z`"));
    let text = text.ok_or_else(rule)?;
    if !(text.ends_with('Z') || text.ends_with("+00:00")) {
        return Err(rule());
    }
    text.parse().map_err(|_| rule())
}

/// The resolution asked for, or the one that fits the window.
fn resolution(asked: Option<&str>, length_s: i64) -> Result<Resolution, Error> {
    let (resolution, days_max) = match asked {
        None if length_s < 7 * DAY_S => return Ok(Resolution::Hourly),
        None if length_s < 90 * DAY_S => return Ok(Resolution::Daily),
        None if length_s < 365 * DAY_S => return Ok(Resolution::Weekly),
        None => return Ok(Resolution::Monthly),
        Some("hourly") => (Resolution::Hourly, 7),
        Some("daily") => (Resolution::Daily, 90),
        // A leap year is a year.
        Some("weekly") => (Resolution::Weekly, 366),
        Some("monthly") => return Ok(Resolution::Monthly),
        Some(_) => return Err(Error::Malformed("`resolution` must be hourly, daily, weekly or monthly".into())),
    };
    if length_s > days_max * DAY_S {
        let message = format!("the window may have at most {days_max} days with this resolution; choose a coarser one");
        return Err(Error::Malformed(message));
    }
    Ok(resolution)
}

fn dimensions(asked: Option<&str>) -> Result<Vec<GroupBy>, Error> {
    let names: Vec<&str> = asked.into_iter().flat_map(|list| list.split(',')).map(str::trim).collect();
    let known = GroupBy::ALL.map(GroupBy::name).join(", ");
    let parse = |name: &&str| GroupBy::parse(name).ok_or_else(|| Error::Malformed(format!("`groupBy` knows {known}")));
    let mut dimensions = names.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    if dimensions.len() > DIMENSIONS_MAX {
        return Err(Error::Malformed(format!("`groupBy` takes at most {DIMENSIONS_MAX} dimensions")));
    }
    dimensions.sort_unstable();
    dimensions.dedup();
    if dimensions.len() != names.len() {
        return Err(Error::Malformed("`groupBy` names a dimension twice".into()));
    }
    Ok(dimensions)
}

/// The caller must belong to the account; a stranger's account does not exist.
fn require_account(person: &Person, id: &str) -> Result<AccountId, Error> {
    let account = AccountId::known(id);
    let within = person.0.memberships.iter().any(|membership| membership.account == account);
    match within || person.0.administers(&account) {
        true => Ok(account),
        false => Err(Error::NotFound("there is no such account among yours; GET /accounts lists them".into())),
    }
}

pub(crate) async fn query(call: Call<Person, MetricsQuery>) -> Result<Reply<AccountMetrics>, Error> {
    let (account, asked) = (require_account(&call.who, call.path.name())?, &call.query);
    if asked.label.is_some() || asked.unit.is_some() {
        return Err(Error::Malformed("`label` and `unit` are not supported".into()));
    }
    if asked.limit.is_some_and(|limit| limit < 1) {
        return Err(Error::Malformed("`limit` must be at least 1".into()));
    }
    let window = Window::parse(asked.start_time.as_deref(), asked.end_time.as_deref())?;
    resolution(asked.resolution.as_deref(), window.length_s())?;
    let dimensions = dimensions(asked.group_by.as_deref())?;
    let splits = asked.workspace.is_some() || dimensions.contains(&GroupBy::Workspace);
    if splits && !call.who.0.administers(&account) {
        return Err(auth::Denied::NotAccountAdmin.into());
    }
    Err(Error::Missing(Missing::BillingMetrics))
}

pub(crate) async fn group_by(call: Call<Person>) -> Result<Reply<MetricsValues>, Error> {
    require_account(&call.who, call.path.name())?;
    Ok(Reply::of(&MetricsValues { values: GroupBy::ALL.map(|dimension| dimension.name().to_owned()).to_vec() }))
}

/// No metric event exists before the meter runs, so no type was seen.
pub(crate) async fn resource_types(call: Call<Person, MetricsQuery>) -> Result<Reply<MetricsValues>, Error> {
    require_account(&call.who, call.path.name())?;
    Window::parse(call.query.start_time.as_deref(), call.query.end_time.as_deref())?;
    Ok(Reply::of(&MetricsValues::default()))
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
        for bad in ["", "label", "workspace,workspace", "workspace,resource_type,resource_name,resource_uuid"] {
            assert!(dimensions(Some(bad)).is_err(), "{bad}");
        }
    }
}
