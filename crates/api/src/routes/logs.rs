//! Logs of workloads: output of job tasks, deployment replicas and builds, and the events of
//! network rules.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::malformed::LogsRule;
use crate::http::reply::Reply;
use auth::Member;
use jobs::logs::{Found, Line, Question, Severity};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use types::wire::{LogAnswer, LogLine, LogTime, WorkloadLogs};
use types::{KindName, Timestamp, Verb};

/// The longest range of one query.
const RANGE_S_MAX: i64 = 3 * 24 * 3600;
const LIMIT_MAX: i64 = 1000;
/// Default number of lines per page.
const LIMIT: i64 = 100;
/// Longest text to search for, in characters.
const SEARCH_MAX: usize = 200;
/// How many workloads one query may name; each is searched separately.
const NAMES_MAX: usize = 20;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogQuery {
    /// Start of the range in UTC, such as `2026-04-16T09:30:00`.
    pub start: Option<String>,
    pub end: Option<String>,
    /// Plural kind: `agents`, `applications`, `functions`, `jobs`, `models` or `sandboxes`. Required.
    pub resource_type: Option<String>,
    /// Name of the workload. Required.
    pub workload_ids: Option<String>,
    /// `all`; output of the workload and of its build is not distinguished.
    #[serde(rename = "type")]
    #[expect(dead_code, reason = "declared by the interface; there is one type of lines")]
    pub kind: Option<String>,
    pub trace_id: Option<String>,
    /// Text that lines must contain, ignoring case.
    #[schemars(length(max = 200))]
    pub search: Option<String>,
    /// Index of a task.
    pub task_id: Option<String>,
    pub execution_id: Option<String>,
    /// Severities, separated by commas.
    pub severity: Option<String>,
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<i64>,
    #[schemars(range(min = 0))]
    pub offset: Option<i64>,
    /// Part of the interface, for counts over time, which are not in the answer.
    #[schemars(range(min = 1))]
    #[expect(dead_code, reason = "declared by the interface")]
    pub interval: Option<i64>,
}

/// The kinds whose logs are kept. For a sandbox that is the output of its build and the events of
/// its network rules: the output of its processes is kept inside it. For a model it is the log of
/// requests, if that is enabled.
const PRINTING: [KindName; 6] = [
    KindName::Agent,
    KindName::Application,
    KindName::Function,
    KindName::Job,
    KindName::Model,
    KindName::Sandbox,
];

/// Parses a time in the query; the published command line writes it without a zone and means UTC.
pub(super) fn time(name: &'static str, text: Option<&str>) -> Result<Option<Timestamp>, Error> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text.parse().or_else(|_| format!("{text}Z").parse());
    parsed.map(Some).map_err(|_| LogsRule::Time { name }.into())
}

/// Returns a value without the blanks around it, if it has anything else.
fn given(text: Option<&String>) -> Option<String> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl LogQuery {
    /// Returns the first and last moment; by default, the last three days.
    fn range(&self, now: Timestamp) -> Result<(Timestamp, Timestamp), Error> {
        let (start, end) =
            (time("start", self.start.as_deref())?, time("end", self.end.as_deref())?);
        // A start in the future is not a mistake: there is simply nothing yet.
        let latest = start.map_or(now, |start| now.clamp(start, start.plus_s(RANGE_S_MAX)));
        let end = end.unwrap_or(latest);
        let start = start.unwrap_or(end.plus_s(-RANGE_S_MAX));
        match end.since(start) / 1000 {
            0..=RANGE_S_MAX => Ok((start, end)),
            _ => Err(LogsRule::Range.into()),
        }
    }

    fn page(&self) -> Result<(usize, usize), Error> {
        let (limit, offset) = (self.limit.unwrap_or(LIMIT), self.offset.unwrap_or(0));
        let page = (1..=LIMIT_MAX)
            .contains(&limit)
            .then(|| (usize::try_from(limit), usize::try_from(offset)));
        match page {
            Some((Ok(limit), Ok(offset))) => Ok((limit, offset)),
            _ => Err(LogsRule::Page { limit_max: LIMIT_MAX }.into()),
        }
    }

    fn search(&self) -> Result<Option<String>, Error> {
        let text = self.search.clone();
        if text.as_ref().is_some_and(|text| text.chars().count() > SEARCH_MAX) {
            return Err(LogsRule::Search { max: SEARCH_MAX }.into());
        }
        Ok(text)
    }

    fn kind_that_prints(&self) -> Result<KindName, Error> {
        let wanted = self.resource_type.as_deref().unwrap_or_default();
        let known = || PRINTING.map(KindName::plural).join(", ");
        let kind = PRINTING.into_iter().find(|kind| kind.plural() == wanted);
        kind.ok_or_else(|| LogsRule::ResourceType { known: known() }.into())
    }

    fn names(&self) -> Result<Vec<String>, Error> {
        names(self.workload_ids.as_deref())
    }

    /// Returns the severities; `all` or nothing means every severity.
    fn severities(&self) -> Result<Vec<Severity>, Error> {
        let words = self.severity.as_deref().unwrap_or_default().split(',').map(str::trim);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        if words.is_empty() || words.iter().any(|word| word.eq_ignore_ascii_case("all")) {
            return Ok(Severity::ALL.to_vec());
        }
        let known: Option<Vec<_>> = words.iter().map(|word| Severity::of_word(word)).collect();
        let mut known = known.ok_or_else(|| {
            let known = Severity::ALL.map(Severity::name).join(", ");
            Error::from(LogsRule::Severity { known })
        })?;
        known.sort_unstable();
        known.dedup();
        Ok(known)
    }
}

/// Splits the list of workload names in a query.
pub(super) fn names(listed: Option<&str>) -> Result<Vec<String>, Error> {
    let names = listed.unwrap_or_default().split(',').map(str::trim);
    let mut names: Vec<_> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
    // Each is answered once, so it is looked for once.
    names.sort_unstable();
    names.dedup();
    match names.len() {
        0 => Err(LogsRule::NoWorkload.into()),
        1..=NAMES_MAX => Ok(names),
        _ => Err(LogsRule::ManyWorkloads { max: NAMES_MAX }.into()),
    }
}

/// Builds the search for one of the names.
fn question(call: &Call<Member, LogQuery>, kind: KindName, name: &str) -> Result<Question, Error> {
    let query = &call.query;
    let (from, to) = query.range(call.app.world.now())?;
    let (limit, offset) = query.page()?;
    Ok(Question {
        workspace: call.who.workspace.clone(),
        kind,
        name: name.to_owned(),
        execution: given(query.execution_id.as_ref()),
        task: given(query.task_id.as_ref()).map(|task| task.parse().unwrap_or(NO_TASK)),
        from,
        to,
        search: query.search()?,
        trace: given(query.trace_id.as_ref()),
        severities: query.severities()?,
        offset,
        limit,
    })
}

/// No execution has that many tasks, so a text that is not an index finds nothing.
const NO_TASK: u32 = u32::MAX;

pub(crate) async fn get(call: Call<Member, LogQuery>) -> Result<Reply<LogAnswer>, Error> {
    let kind = call.query.kind_that_prints()?;
    call.who.who.may(&[kind.scope(Verb::Get)])?;
    let (mut answer, mut room) = (BTreeMap::new(), call.room.another());
    for name in call.query.names()? {
        // The name is included even if nothing was logged, because clients look for it.
        let found = call.app.log_searches.find(question(&call, kind, &name)?).await?;
        // What was found for one name waits while the next one is searched for.
        room.grow(found.lines.iter().map(|line| line.message.len()).sum())?;
        answer.insert(name, shown(found));
    }
    Ok(Reply::of(&LogAnswer(answer)))
}

fn shown(found: Found) -> WorkloadLogs {
    let line = |line: Line| LogLine {
        timestamp: LogTime::from_ns(line.at_ns),
        message: line.message,
        severity: line.severity.number(),
        trace_id: line.trace,
    };
    let total_count = i64::try_from(found.total).unwrap_or(i64::MAX);
    WorkloadLogs { logs: found.lines.into_iter().map(line).collect(), total_count }
}
