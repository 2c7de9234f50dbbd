//! Log lines of workloads and builds, as stored by the server.

use super::Client;
use crate::error::Error;
use serde_json::Value;
use std::collections::HashMap;
use types::Timestamp;

pub(crate) const ALL_SEVERITIES: &str = "all,UNKNOWN,TRACE,DEBUG,INFO,WARNING,ERROR,FATAL";
/// Each request starts this much before the end of the last one, since lines can arrive late.
const OVERLAP_S: i64 = 30;
const PAGE: usize = 1000;
const PAGES_MAX: usize = 100;

/// Selection of lines.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    /// Plural name of the kind.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) severity: String,
    pub(crate) search: String,
    pub(crate) trace: String,
    pub(crate) execution: String,
    pub(crate) task: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Line {
    pub(crate) at: String,
    pub(crate) severity: i64,
    pub(crate) message: String,
}

/// Polls for log lines and returns those that are new.
pub(crate) struct Tail {
    asked: Ask,
    start: Timestamp,
    seen: Vec<Line>,
}

impl Tail {
    pub(crate) fn new(asked: Ask, start: Timestamp) -> Self {
        Self { asked, start, seen: Vec::new() }
    }

    /// Returns new lines from before `end`, oldest first.
    pub(crate) async fn read(
        &mut self,
        end: Timestamp,
        client: &mut Client,
    ) -> Result<Vec<Line>, Error> {
        let lines = fetch(&self.asked, self.start, end, client).await?;
        let new = fresh(&lines, &self.seen).cloned().collect();
        // Never earlier than the original start, since older lines were not asked for.
        self.start = self.start.max(end.plus_s(-OVERLAP_S));
        self.seen = lines;
        Ok(new)
    }
}

/// Returns the lines that occur more often than they were seen. Tasks that print the same text at
/// the same moment count as separate lines.
fn fresh<'a>(lines: &'a [Line], seen: &'a [Line]) -> impl Iterator<Item = &'a Line> {
    let mut counts: HashMap<&Line, usize> = HashMap::new();
    seen.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    lines.iter().filter(move |line| match counts.get_mut(*line) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        _ => true,
    })
}

/// Returns the lines in the time window, oldest first. If there are too many, the newest are
/// returned and a note says so.
async fn fetch(
    asked: &Ask,
    start: Timestamp,
    end: Timestamp,
    client: &mut Client,
) -> Result<Vec<Line>, Error> {
    let (mut lines, mut place) = (Vec::new(), Place::default());
    for _ in 0..PAGES_MAX {
        let found = fetch_page(asked, start, end, place.offset, client).await?;
        let last = found.lines.len() < PAGE;
        lines.extend(place.take(found));
        if last {
            lines.reverse();
            return Ok(lines);
        }
    }
    crate::term::note(format!(
        "only the newest {} lines are shown; narrow them with --since, --severity or --search",
        lines.len()
    ));
    lines.reverse();
    Ok(lines)
}

/// A part of the lines in a window, newest first, and how many there are in all.
#[derive(Debug)]
struct Found {
    lines: Vec<Line>,
    total: usize,
}

/// Where the next page begins, counted from the newest line.
#[derive(Debug, Default)]
struct Place {
    offset: usize,
    /// How many lines there were when the last page was read.
    total: Option<usize>,
    last: Vec<Line>,
}

impl Place {
    /// Returns the lines of a page that were not on the one before. Lines that have come in between
    /// have moved all others back. They are left to the next time, as lines are that come too late.
    fn take(&mut self, found: Found) -> impl Iterator<Item = Line> {
        let come = self.total.map_or(0, |before| found.total.saturating_sub(before));
        self.total = Some(found.total);
        self.offset += found.lines.len().max(come);
        let Found { mut lines, .. } = found;
        let rest = lines.split_off(come.min(lines.len()));
        // Those that have come further back have moved no other, and are here for the first time.
        // If a whole page has come, it is left to the next time like what has come before it.
        let mut new: Vec<Line> = match come < PAGE {
            true => fresh(&lines, &self.last).cloned().collect(),
            false => Vec::new(),
        };
        self.last = lines;
        self.last.extend_from_slice(&rest);
        new.extend(rest);
        new.into_iter()
    }
}

async fn fetch_page(
    asked: &Ask,
    start: Timestamp,
    end: Timestamp,
    offset: usize,
    client: &mut Client,
) -> Result<Found, Error> {
    let severity = if asked.severity.is_empty() { ALL_SEVERITIES } else { &asked.severity };
    let (start, end) = (without_zone(start), without_zone(end));
    let (limit, offset) = (PAGE.to_string(), offset.to_string());
    let workspace = client.workspace().unwrap_or_default().to_owned();
    let query = [
        ("start", start.as_str()),
        ("end", end.as_str()),
        ("resourceType", asked.kind),
        ("workloadIds", asked.name.as_str()),
        ("type", "all"),
        ("traceId", asked.trace.as_str()),
        ("search", asked.search.as_str()),
        ("taskId", asked.task.as_str()),
        ("executionId", asked.execution.as_str()),
        ("limit", limit.as_str()),
        ("offset", offset.as_str()),
        ("severity", severity),
        ("interval", "60"),
        ("workspace", workspace.as_str()),
    ];
    let answer = client.get("observability/logs", &query).await?;
    Ok(found_in(&answer, &asked.name))
}

fn found_in(answer: &Value, name: &str) -> Found {
    let member = |member: &str| answer.get(name).and_then(|of| of.get(member));
    let logs = member("logs").and_then(Value::as_array);
    let line = |entry: &Value| Line {
        at: entry.get("timestamp").and_then(Value::as_str).unwrap_or_default().to_owned(),
        severity: entry.get("severity").and_then(Value::as_i64).unwrap_or_default(),
        message: entry.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    let lines: Vec<_> = logs.into_iter().flatten().map(line).collect();
    let total = member("totalCount").and_then(Value::as_u64);
    let total = total.and_then(|total| usize::try_from(total).ok()).unwrap_or(lines.len());
    Found { lines, total }
}

/// Formats a time for the endpoint, which takes whole seconds in UTC without a zone.
fn without_zone(time: Timestamp) -> String {
    time.to_string().chars().take("2026-04-16T09:30:00".len()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_found_under_the_name() {
        let answer = json!({"box": {"logs": [{"timestamp": "t", "message": "m", "severity": 9}], "totalCount": 1}});
        let found = found_in(&answer, "box");
        assert_eq!(found.lines, [Line { at: "t".into(), severity: 9, message: "m".into() }]);
        assert_eq!(found.total, 1);
        assert!(found_in(&answer, "other").lines.is_empty());
    }

    #[track_caller]
    fn read_while_printing(lines_between_pages: usize) {
        const BEGUN: usize = 3 * PAGE + 17;
        let (mut printed, mut read, mut place) = (BEGUN, Vec::new(), Place::default());
        loop {
            let line = |number: usize| Line {
                at: number.to_string(),
                severity: 9,
                message: "the same".into(),
            };
            let rest = (0..printed).rev().skip(place.offset);
            let found = Found { lines: rest.take(PAGE).map(line).collect(), total: printed };
            let last = found.lines.len() < PAGE;
            read.extend(place.take(found).map(|line| line.at.parse::<usize>().unwrap()));
            if last {
                break;
            }
            printed += lines_between_pages;
        }
        assert!(read.iter().copied().eq((0..BEGUN).rev()), "{lines_between_pages}: {read:?}");
    }

    #[test]
    fn lines_that_come_between_pages_show_no_other_line_twice() {
        [0, 1, 17, PAGE - 1].into_iter().for_each(read_while_printing);
    }

    #[test]
    fn lines_that_come_further_back_make_none_be_left_out() {
        let line = |number: usize| Line {
            at: number.to_string(),
            severity: 9,
            message: "the same".into(),
        };
        let mut printed: Vec<_> = (0..2 * PAGE + 17).map(line).collect();
        let (mut read, mut place) = (Vec::new(), Place::default());
        for late in [PAGE + 5, 2 * PAGE + 5, usize::MAX] {
            let page = printed.iter().skip(place.offset).take(PAGE).cloned().collect();
            read.extend(place.take(Found { lines: page, total: printed.len() }));
            if late < printed.len() {
                printed.splice(late..late, (9_000..9_003).map(line));
            }
        }
        assert_eq!(read, printed);
    }

    #[test]
    fn the_same_words_at_the_same_time_are_two_lines() {
        let line = |message: &str| Line { at: "t".into(), severity: 9, message: message.into() };
        let (first, second) =
            (vec![line("a"), line("b")], vec![line("a"), line("a"), line("b"), line("c")]);
        let shown: Vec<_> = fresh(&second, &first).map(|line| line.message.as_str()).collect();
        assert_eq!(shown, ["a", "c"]);
    }

    #[test]
    fn times_are_sent_without_a_zone() {
        assert_eq!(
            without_zone("2026-04-16T09:30:00.125Z".parse().unwrap()),
            "2026-04-16T09:30:00"
        );
    }
}
