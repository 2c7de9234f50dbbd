//! `holm logs`: shows the output of workloads and their builds.

use crate::client::Client;
use crate::client::log_lines::{ALL_SEVERITIES, Ask, Line, Tail};
use crate::client::{kinds, target};
use crate::commands::run::Status;
use crate::commands::usage::window;
use crate::duration::Span;
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use crate::world;
use serde_json::json;
use std::time::Duration;
use types::Timestamp;

/// Shows the logs of a workload
///
/// These are what its programs printed, and what building its image printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm logs agent helper --follow
  holm logs agent helper --since 3d --severity WARNING,ERROR
  holm logs job nightly exe_3f9c0a 1     # what the second task printed
  holm logs agent helper --start 2026-04-16T09:30:00Z --end 2026-04-16T10:00:00Z")]
pub(crate) struct Args {
    /// agent, function, job, sandbox, application or model
    kind: String,
    /// Name of the workload
    name: String,
    /// Execution of a job
    #[arg(value_name = "EXECUTION")]
    execution: Option<String>,
    /// Task of the execution
    #[arg(value_name = "TASK")]
    task: Option<String>,
    /// Keep showing new lines; for an execution until it has ended
    #[arg(short, long)]
    follow: bool,
    /// How far to look back, such as 30m, at most 3d; by default an hour, with --follow 15 minutes,
    /// for an execution 3 days
    #[arg(long, alias = "period", value_name = "LENGTH")]
    since: Option<Span>,
    /// Start of the time window: a time such as 2026-04-16T09:30:00Z, a day (UTC) or an age
    #[arg(long, conflicts_with = "since", value_name = "TIME")]
    start: Option<String>,
    /// End of the time window; by default now
    #[arg(long, conflicts_with = "follow", value_name = "TIME")]
    end: Option<String>,
    /// Only lines that contain this text
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only these levels, separated by commas: TRACE, DEBUG, INFO, WARNING, ERROR, FATAL, UNKNOWN;
    /// by default all
    #[arg(long, value_name = "NAMES", default_value = ALL_SEVERITIES, hide_default_value = true)]
    severity: String,
    /// Only lines of the trace with this id
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Show only messages, without times
    #[arg(long)]
    raw: bool,
    /// Print each line as a JSON object with `timestamp`, `severity` and `message`
    #[arg(long, conflicts_with = "raw")]
    json: bool,
}

impl Args {
    fn form(&self) -> Form {
        match (self.raw, self.json) {
            (true, _) => Form::Raw,
            (_, true) => Form::Json,
            _ => Form::Text,
        }
    }

    fn asked(&self, kind: &'static str) -> Ask {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Ask {
            kind,
            name: self.name.clone(),
            severity: self.severity.clone(),
            search: text(&self.search),
            trace: text(&self.trace),
            execution: text(&self.execution),
            task: text(&self.task),
        }
    }

    /// Returns how far to look back if nobody says so.
    fn back(&self) -> Span {
        match (&self.execution, self.follow) {
            // It may have run at any time.
            (Some(_), _) => WINDOW_MAX,
            (None, true) => LOOK_BACK_FOLLOWING,
            (None, false) => LOOK_BACK,
        }
    }

    /// Tells that there are no lines, and where others may be.
    fn nothing(&self, back: Span) -> &'static str {
        match (&self.since, &self.start, &self.end) {
            (None, None, None) if back == LOOK_BACK => {
                "no lines in the last hour; --since 3d looks further back"
            }
            (_, None, None) if back < WINDOW_MAX => {
                "no lines in this time; --since 3d looks further back"
            }
            (_, None, None) => "no lines in the last 3 days",
            _ => "no lines in this time",
        }
    }
}

/// How lines are shown.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    Raw,
    Json,
}

const KINDS: [&str; 6] = ["agents", "applications", "functions", "jobs", "models", "sandboxes"];
const LOOK_BACK: Span = Span(Duration::from_secs(3600));
const LOOK_BACK_FOLLOWING: Span = Span(Duration::from_secs(900));
/// Longest time window. The server keeps no older logs, and longer windows would just be slow.
const WINDOW_MAX: Span = Span(Duration::from_secs(3 * 86_400));
const POLL: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let kind = kinds::find(&args.kind)?.name();
    if !KINDS.contains(&kind) {
        let others = KINDS.join(", ");
        return Err(Error::Usage(format!("{kind} have no logs; these have: {others}")));
    }
    let now = world::system().now();
    let back = args.since.unwrap_or_else(|| args.back());
    if back > WINDOW_MAX {
        return Err(Error::Usage(
            "logs are shown for at most 3 days; use a shorter --since".into(),
        ));
    }
    let before = |time: Timestamp, span: Span| {
        time.plus_ms(-i64::try_from(span.0.as_millis()).unwrap_or_default())
    };
    let read =
        |time: &Option<String>| time.as_deref().map(|time| window::read(time, now)).transpose();
    let end = read(&args.end)?.unwrap_or_else(|| now.plus_s(1));
    // The window must not be longer by the second that it ends later.
    let start =
        read(&args.start)?.unwrap_or_else(|| before(now, back).max(before(end, WINDOW_MAX)));
    let mut tail = Tail::new(args.asked(kind), start);
    let lines = tail.read(end, &mut client).await?;
    lines.iter().for_each(|line| show(line, args.form()));
    if lines.is_empty() {
        must_exist(&args, kind, &mut client).await?;
    }
    if args.follow {
        return follow(&args, tail, &mut client).await;
    }
    if lines.is_empty() {
        term::note(args.nothing(back));
        if kind == "models" {
            term::note("a model has lines only if `spec.requestLog` turns them on");
        }
    }
    Ok(Exit::Success)
}

/// Shows new lines as they come: those of an execution until it has ended, others until somebody
/// interrupts it.
async fn follow(args: &Args, mut tail: Tail, client: &mut Client) -> Result<Exit, Error> {
    let execution = match &args.execution {
        Some(id) => Some(executions(&args.name)?.object(id)?),
        None => None,
    };
    loop {
        // Asked before the lines are read, because the last ones come a little after the end.
        let over = match &execution {
            Some(path) => has_ended(path, client).await?,
            None => false,
        };
        tokio::time::sleep(POLL).await;
        let end = world::system().now().plus_s(1);
        let lines = client.with_retries(async |client| tail.read(end, client).await).await?;
        lines.iter().for_each(|line| show(line, args.form()));
        if over {
            return Ok(Exit::Success);
        }
    }
}

/// True if nothing more comes from an execution: it has ended, or was deleted with its job.
async fn has_ended(path: &str, client: &mut Client) -> Result<bool, Error> {
    let execution = client.find_with_retries(path).await?;
    Ok(execution.is_none_or(|execution| Status::read(&execution).exit().is_some()))
}

fn executions(job: &str) -> Result<target::Target, Error> {
    target::resolve(&["jobs".to_owned(), job.to_owned(), "executions".to_owned()])
}

/// Refuses names of nothing. Lines outlive what printed them, so this is asked only when there are
/// none.
async fn must_exist(args: &Args, kind: &'static str, client: &mut Client) -> Result<(), Error> {
    let below = args.execution.iter().flat_map(|id| ["executions".to_owned(), id.clone()]);
    let words: Vec<_> = [kind.to_owned(), args.name.clone()].into_iter().chain(below).collect();
    let target = target::resolve(&words)?;
    let name = args.execution.as_ref().unwrap_or(&args.name);
    match client.find(&target.object(name)?).await? {
        Some(_) => Ok(()),
        None => Err(Error::Absent(format!(
            "there is no {} `{name}`, and it has printed nothing in this time",
            target.kind.one()
        ))),
    }
}

fn show(line: &Line, form: Form) {
    let message = term::harmless(&line.message);
    match form {
        Form::Raw => return term::say(message),
        Form::Json => {
            let (at, severity, message) = (&line.at, line.severity, &line.message);
            return term::say(json!({"timestamp": at, "severity": severity, "message": message}));
        }
        Form::Text => {}
    }
    // OpenTelemetry's severity numbers: 13 to 16 are warnings, 17 and above are errors.
    let style = match line.severity {
        17.. => Some(Style::Bad),
        13..=16 => Some(Style::Warning),
        _ => None,
    };
    let message = style.map_or_else(|| message.clone(), |style| term::styled(style, &message));
    term::say(format!("{} {message}", term::styled(Style::Dim, term::harmless(&line.at))));
}
