//! Logs of workloads and builds. Nothing runs or builds before its engine does, so nothing was written yet.

use crate::call::Call;
use crate::error::Error;
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use types::wire::{LogAnswer, WorkloadLogs};

/// The longest range of one query.
const RANGE_S_MAX: i64 = 3 * 24 * 3600;
const LIMIT_MAX: i64 = 1000;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "declared by the interface; there are no lines to filter before workloads run")]
pub(crate) struct LogQuery {
    /// UTC, such as `2026-04-16T09:30:00`.
    pub start: Option<String>,
    pub end: Option<String>,
    /// Plural kind, such as `sandboxes`.
    pub resource_type: Option<String>,
    /// Name of the workload. Required.
    pub workload_ids: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub trace_id: Option<String>,
    pub search: Option<String>,
    pub task_id: Option<String>,
    pub execution_id: Option<String>,
    /// Severities, separated by commas.
    pub severity: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<i64>,
    #[schemars(range(min = 0))]
    pub offset: Option<i64>,
    #[schemars(range(min = 1))]
    pub interval: Option<i64>,
}

/// A time of the query; the published command line writes it without a zone and means UTC.
fn time(name: &str, text: Option<&str>) -> Result<Option<types::Timestamp>, Error> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text.parse().or_else(|_| format!("{text}Z").parse());
    parsed.map(Some).map_err(|_| Error::Malformed(format!("`{name}` must be a UTC time such as `2026-04-16T09:30:00`")))
}

impl LogQuery {
    fn check(&self) -> Result<&str, Error> {
        let (start, end) = (time("start", self.start.as_deref())?, time("end", self.end.as_deref())?);
        if let (Some(start), Some(end)) = (start, end) {
            let length_s = end.since(start) / 1000;
            if !(0..=RANGE_S_MAX).contains(&length_s) {
                return Err(Error::Malformed("`start` must be before `end`, and at most 3 days before it".into()));
            }
        }
        if self.limit.is_some_and(|limit| !(1..=LIMIT_MAX).contains(&limit))
            || self.offset.is_some_and(|offset| offset < 0)
        {
            return Err(Error::Malformed(format!("`limit` must be 1 to {LIMIT_MAX} and `offset` at least 0")));
        }
        self.workload_ids
            .as_deref()
            .ok_or_else(|| Error::Malformed("`workloadIds` is required: the name of a workload".into()))
    }
}

pub(crate) async fn get(call: Call<Member, LogQuery>) -> Result<Reply<LogAnswer>, Error> {
    let names = call.query.check()?.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(Reply::of(&LogAnswer(names.map(|name| (name.to_owned(), WorkloadLogs::default())).collect())))
}
