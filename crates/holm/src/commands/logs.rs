//! `holm logs`: what a workload wrote, and how its build went.

use crate::client::Client;
use crate::client::kinds;
use crate::duration::Span;
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use crate::world;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use types::Timestamp;

/// Shows the logs of a workload
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// agent, function, job, sandbox or application
    kind: String,
    /// Name of the workload
    name: String,
    /// Execution of a job
    #[arg(value_name = "EXECUTION")]
    execution: Option<String>,
    /// Task of the execution
    #[arg(value_name = "TASK")]
    task: Option<String>,
    /// Go on showing what is written
    #[arg(short, long)]
    follow: bool,
    /// How far to look back, such as 30m; an hour, or 15 minutes with --follow
    #[arg(long, alias = "period", value_name = "LENGTH")]
    since: Option<Span>,
    /// First moment, such as 2026-04-16T09:30:00Z
    #[arg(long, conflicts_with = "since", value_name = "TIME")]
    start: Option<Timestamp>,
    /// Moment to stop at
    #[arg(long, conflicts_with = "follow", value_name = "TIME")]
    end: Option<Timestamp>,
    /// Only lines with this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only these, with commas: TRACE, DEBUG, INFO, WARNING, ERROR, FATAL, UNKNOWN
    #[arg(long, value_name = "NAMES", default_value = ALL_SEVERITIES)]
    severity: String,
    /// Only lines of this trace
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Only the messages, without times
    #[arg(long)]
    raw: bool,
}

const ALL_SEVERITIES: &str = "all,UNKNOWN,TRACE,DEBUG,INFO,WARNING,ERROR,FATAL";
const LOOK_BACK: Span = Span(Duration::from_secs(3600));
const LOOK_BACK_FOLLOWING: Span = Span(Duration::from_secs(900));
/// The server keeps no more; a longer window would only be slow.
const WINDOW_MAX: Span = Span(Duration::from_secs(3 * 86_400));
const POLL: Duration = Duration::from_secs(2);
/// Lines can arrive late, so each look reaches back a little over the one before.
const OVERLAP_S: i64 = 30;
const PAGE: usize = 1000;
const PAGES_MAX: usize = 100;

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let kind = kinds::find(&args.kind)?.name();
    if !["agents", "functions", "jobs", "sandboxes", "applications"].contains(&kind) {
        return Err(Error::Usage(format!(
            "{kind} have no logs; agents, applications, functions, jobs and sandboxes have"
        )));
    }
    let now = world::system().now();
    let back = args.since.unwrap_or(if args.follow { LOOK_BACK_FOLLOWING } else { LOOK_BACK });
    if back > WINDOW_MAX {
        return Err(Error::Usage(
            "logs are shown for at most 3 days; use a shorter --since".into(),
        ));
    }
    let mut start =
        args.start.unwrap_or_else(|| now.plus_ms(-i64::try_from(back.0.as_millis()).unwrap_or(0)));
    let mut end = args.end.unwrap_or_else(|| now.plus_s(1));
    let mut seen = Vec::new();
    loop {
        let lines = fetch(&args, kind, start, end, &mut client).await?;
        fresh(&lines, &seen).for_each(|line| show(line, args.raw));
        if !args.follow {
            return Ok(Exit::Success);
        }
        seen = lines;
        tokio::time::sleep(POLL).await;
        start = end.plus_s(-OVERLAP_S);
        end = world::system().now().plus_s(1);
    }
}

/// Those that were not seen as often. Tasks that print the same in the same moment are as many
/// lines.
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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Line {
    at: String,
    severity: i64,
    message: String,
}

/// All lines of the window, oldest first.
async fn fetch(
    args: &Args,
    kind: &str,
    start: Timestamp,
    end: Timestamp,
    client: &mut Client,
) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    for page in 0..PAGES_MAX {
        let found = fetch_page(args, kind, start, end, page * PAGE, client).await?;
        let last = found.len() < PAGE;
        lines.extend(found);
        if last {
            break;
        }
    }
    lines.reverse();
    Ok(lines)
}

async fn fetch_page(
    args: &Args,
    kind: &str,
    start: Timestamp,
    end: Timestamp,
    offset: usize,
    client: &mut Client,
) -> Result<Vec<Line>, Error> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let fields = [
        ("start", without_zone(start)),
        ("end", without_zone(end)),
        ("resourceType", kind.to_owned()),
        ("workloadIds", args.name.clone()),
        ("type", "all".to_owned()),
        ("traceId", text(&args.trace)),
        ("search", text(&args.search)),
        ("taskId", text(&args.task)),
        ("executionId", text(&args.execution)),
        ("limit", PAGE.to_string()),
        ("offset", offset.to_string()),
        ("severity", args.severity.clone()),
        ("interval", "60".to_owned()),
        ("workspace", client.workspace().unwrap_or_default().to_owned()),
    ];
    let query: Vec<_> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = client.get("observability/logs", &query).await?;
    Ok(lines_of(&answer, &args.name))
}

fn lines_of(answer: &Value, name: &str) -> Vec<Line> {
    let logs = answer.get(name).and_then(|of| of.get("logs")).and_then(Value::as_array);
    let line = |entry: &Value| Line {
        at: entry.get("timestamp").and_then(Value::as_str).unwrap_or_default().to_owned(),
        severity: entry.get("severity").and_then(Value::as_i64).unwrap_or_default(),
        message: entry.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    logs.into_iter().flatten().map(line).collect()
}

/// The endpoint takes whole seconds of UTC without a zone.
fn without_zone(time: Timestamp) -> String {
    time.to_string().chars().take("2026-04-16T09:30:00".len()).collect()
}

fn show(line: &Line, raw: bool) {
    let message = term::harmless(&line.message);
    if raw {
        term::say(message);
        return;
    }
    // OpenTelemetry's numbers: 13 to 16 are warnings, 17 and more are errors.
    let style = match line.severity {
        17.. => Some(Style::Bad),
        13..=16 => Some(Style::Warning),
        _ => None,
    };
    let message = style.map_or_else(|| message.clone(), |style| term::styled(style, &message));
    term::say(format!("{} {message}", term::styled(Style::Dim, term::harmless(&line.at))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_found_under_the_name() {
        let answer = json!({"box": {"logs": [{"timestamp": "t", "message": "m", "severity": 9}], "totalCount": 1}});
        assert_eq!(
            lines_of(&answer, "box"),
            [Line { at: "t".into(), severity: 9, message: "m".into() }]
        );
        assert!(lines_of(&answer, "other").is_empty());
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
