//! Usage of models by hour.

use super::{ledgers, written};
use crate::usage::insert;
use crate::{Error, Row, Tx, Value, params};
use types::Timestamp;
use types::ids::WorkspaceId;
use types::model_books::{SUM_MAX, UsageKey, UsageSum};
use types::time::HOUR_MS;
use types::wire::ModelUsageBy;

const TABLE: &str = "model_usage";
const KEY: &str =
    "workspace_id, hour, model, model_id, caller, end_user, tag, provider, provider_model";
const SUMS: [&str; 9] = [
    "calls",
    "failed",
    "estimated",
    "input",
    "output",
    "cached",
    "cache_written",
    "reasoning",
    "cost",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub workspace: WorkspaceId,
    /// Name of a model; `None` for all.
    pub model: Option<String>,
    /// First hour, counted since 1970. `end` is the hour after the last.
    pub first: i64,
    pub end: i64,
    /// Properties to group by, without duplicates.
    pub group_by: Vec<ModelUsageBy>,
    /// Hours in one step. `None` makes everything one step.
    pub step: Option<i64>,
    /// Most rows to read.
    pub rows_max: i64,
}

/// Usage of one group in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// First hour of the step.
    pub hour: i64,
    /// Values in the order of `group_by`. Empty if requests named none.
    pub group: Vec<String>,
    pub sum: UsageSum,
}

/// Adds usage to hours. The list must not contain a key twice.
pub(super) fn add(tx: &mut Tx<'_>, usage: &[(UsageKey, UsageSum)]) -> Result<(), Error> {
    let mut usage: Vec<&(UsageKey, UsageSum)> = usage.iter().collect();
    // The same order everywhere, so that two servers do not deadlock.
    usage.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let rows = usage.iter().map(|(key, sum)| values(key, sum)).collect::<Result<Vec<_>, _>>()?;
    let grow = |name: &str| {
        format!(
            "{name} = CASE WHEN model_usage.{name} > {SUM_MAX} THEN model_usage.{name}
             ELSE model_usage.{name} + excluded.{name} END"
        )
    };
    let sums = SUMS.map(grow).join(", ");
    let clash = format!("ON CONFLICT ({KEY}) DO UPDATE SET {sums}");
    insert(tx, &format!("model_usage ({KEY}, {})", SUMS.join(", ")), &clash, &rows)
}

fn values(key: &UsageKey, sum: &UsageSum) -> Result<Vec<Value>, Error> {
    let text = |text: &Option<String>| Value::from(text.as_deref().unwrap_or_default());
    let mut values = vec![
        (&key.workspace).into(),
        key.hour.into(),
        key.model.as_str().into(),
        (&key.model_id).into(),
        key.key.as_str().into(),
        text(&key.end_user),
        text(&key.tag),
        written(TABLE, &key.provider)?.into(),
        key.provider_model.as_str().into(),
    ];
    let UsageSum { calls, failed, estimated, input, output, .. } = *sum;
    let UsageSum { cached, cache_written, reasoning, cost, .. } = *sum;
    let sums = [calls, failed, estimated, input, output, cached, cache_written, reasoning, cost];
    values.extend(sums.map(Value::from));
    Ok(values)
}

const fn column(by: ModelUsageBy) -> &'static str {
    match by {
        ModelUsageBy::Model => "model",
        ModelUsageBy::Key => "caller",
        ModelUsageBy::EndUser => "end_user",
        ModelUsageBy::Tag => "tag",
        ModelUsageBy::Provider => "provider",
        ModelUsageBy::ProviderModel => "provider_model",
    }
}

/// Returns the usage by step and group.
pub fn usage(tx: &mut Tx<'_>, question: &Question) -> Result<Vec<UsageRow>, Error> {
    let length = question.step.unwrap_or(i64::MAX / HOUR_MS).max(1);
    let columns: Vec<&str> = question.group_by.iter().map(|by| column(*by)).collect();
    let listed: String = columns.iter().map(|column| format!(", {column}")).collect();
    let sums = SUMS.map(|name| format!("CAST(SUM({name}) AS BIGINT)")).join(", ");
    // The step is part of the text: with a parameter, databases would not see that both expressions
    // are equal.
    let sql = format!(
        "SELECT hour / {length}{listed}, {sums} FROM model_usage
         WHERE workspace_id = $1 AND hour >= $2 AND hour < $3 AND ($4 = '' OR model = $4)
         GROUP BY hour / {length}{listed} ORDER BY hour / {length}{listed} LIMIT $5"
    );
    let model = question.model.as_deref().unwrap_or_default();
    let Question { workspace, first, end, rows_max, .. } = question;
    let rows = tx.query(TABLE, &sql, params![workspace, *first, *end, model, *rows_max])?;
    rows.iter().map(|row| read(row, columns.len(), length, *first)).collect()
}

fn read(row: &Row, groups: usize, length: i64, first: i64) -> Result<UsageRow, Error> {
    let group = (1..=groups).map(|column| row.text(column)).collect::<Result<_, _>>()?;
    let sum = |place: usize| row.int(1 + groups + place);
    let sum = UsageSum {
        calls: sum(0)?,
        failed: sum(1)?,
        estimated: sum(2)?,
        input: sum(3)?,
        output: sum(4)?,
        cached: sum(5)?,
        cache_written: sum(6)?,
        reasoning: sum(7)?,
        cost: sum(8)?,
    };
    Ok(UsageRow { hour: (row.int(0)? * length).max(first), group, sum })
}

/// Deletes hours before a time, and ledgers that were last seen before it.
pub fn trim_usage(tx: &mut Tx<'_>, before: Timestamp, limit: i64) -> Result<u64, Error> {
    let sql = format!(
        "DELETE FROM model_usage WHERE ({KEY}) IN (
             SELECT {KEY} FROM model_usage WHERE hour < $1 LIMIT $2)"
    );
    let usage = tx.execute(&sql, params![before.ms() / HOUR_MS, limit])?;
    Ok(usage + ledgers::trim(tx, before, limit)?)
}
