//! `holm requests`: request counts and latencies of deployments.

use crate::client::{Client, kinds, target};
use crate::commands::usage::window;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::{term, world};
use serde_json::Value;
use std::time::Duration;
use types::wire::{RequestAnswer, RequestCounts, WorkloadRequests};

/// Shows how many requests deployments had, how many failed, and how long they took
///
/// Counts from the start of the server, or within a time window. By default the server keeps counts
/// by the minute for the last hour. Latencies are upper bounds.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm requests
  holm requests agent helper --since 10m
  holm requests app --watch")]
pub(crate) struct Args {
    /// agent, application or function; by default all three
    kind: Option<String>,
    /// Names; by default all of the kind
    names: Vec<String>,
    /// Start of the window: an age such as 10m, or a time such as 2026-04-16T09:30:00Z
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// End of the window, not included; by default now
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Show them again every two seconds, until interrupted
    #[arg(long)]
    watch: bool,
}

const COUNTED: [&str; 3] = ["agents", "applications", "functions"];
/// Most names that the server accepts in one request.
const NAMES_AT_ONCE: usize = 20;
const POLL: Duration = Duration::from_secs(2);

/// A deployment and its counts.
struct Line {
    kind: &'static str,
    name: String,
    of: WorkloadRequests,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let kinds = kinds_of(args.kind.as_deref())?;
    loop {
        let query = Window::read(&args)?;
        let mut lines = Vec::new();
        for kind in &kinds {
            lines.extend(counted(kind, &args.names, &query, &mut client).await?);
        }
        show(&lines, args.output);
        if !args.watch {
            return Ok(Exit::Success);
        }
        tokio::time::sleep(POLL).await;
        term::say("");
    }
}

fn kinds_of(word: Option<&str>) -> Result<Vec<&'static str>, Error> {
    let Some(word) = word else { return Ok(COUNTED.to_vec()) };
    let name = kinds::find(word)?.name();
    if COUNTED.contains(&name) {
        return Ok(vec![name]);
    }
    Err(Error::Usage(format!(
        "requests to {name} are not counted; those to {} are",
        COUNTED.join(", ")
    )))
}

/// Ends of the window in the form of the API. Ages are converted anew for each request.
struct Window {
    start: Option<String>,
    end: Option<String>,
}

impl Window {
    fn read(args: &Args) -> Result<Self, Error> {
        let now = world::system().now();
        let time = |text: &Option<String>| {
            let text = text.as_deref().map(|text| window::read(text, now)).transpose();
            text.map(|time| time.map(|time| time.to_string()))
        };
        Ok(Self { start: time(&args.since)?, end: time(&args.until)? })
    }
}

async fn counted(
    kind: &'static str,
    names: &[String],
    window: &Window,
    client: &mut Client,
) -> Result<Vec<Line>, Error> {
    let names = match names {
        [] => all_names(kind, client).await?,
        named => {
            // The counts of what is not there would be zeros.
            let target = target::resolve(&[kind.to_owned()])?;
            for name in named {
                client.one(&target, name, &[]).await?;
            }
            named.to_vec()
        }
    };
    let mut lines = Vec::new();
    for names in names.chunks(NAMES_AT_ONCE) {
        lines.extend(ask(kind, names, window, client).await?);
    }
    Ok(lines)
}

async fn all_names(kind: &str, client: &mut Client) -> Result<Vec<String>, Error> {
    let items = client.list(&target::resolve(&[kind.to_owned()])?, &[]).await?;
    let name = |item: &Value| item.pointer("/metadata/name")?.as_str().map(str::to_owned);
    Ok(items.iter().filter_map(name).collect())
}

async fn ask(
    kind: &'static str,
    names: &[String],
    window: &Window,
    client: &mut Client,
) -> Result<Vec<Line>, Error> {
    let names = names.join(",");
    let mut query = vec![("resourceType", kind), ("workloadIds", names.as_str())];
    let ends = [("start", &window.start), ("end", &window.end)];
    query.extend(ends.into_iter().filter_map(|(name, end)| Some((name, end.as_deref()?))));
    let answer = client.get("observability/requests", &query).await?;
    let RequestAnswer(all) = serde_json::from_value(answer)
        .map_err(|error| Error::NotHolm { server: client.server(), message: error.to_string() })?;
    Ok(all.into_iter().map(|(name, of)| Line { kind, name, of }).collect())
}

fn show(lines: &[Line], format: Format) {
    if format != Format::Table {
        let items: Vec<_> = lines.iter().map(Line::plain).collect();
        term::say(output::plain(&items, format));
        return;
    }
    if lines.is_empty() {
        term::note("there is nothing whose requests are counted");
        return;
    }
    let heading =
        ["KIND", "NAME", "REVISION", "REPLICAS", "REQUESTS", "ERRORS", "P50", "P90", "P99"];
    term::say(output::lines(&heading.map(str::to_owned), lines.iter().flat_map(Line::rows)));
}

impl Line {
    /// Returns a row for the whole, then one for each revision if several serve.
    fn rows(&self) -> Vec<Vec<String>> {
        let front = |revision: &str, replicas: String| {
            [self.kind, &self.name, revision, &replicas].map(term::harmless).to_vec()
        };
        let row = |front: Vec<String>, counts: &RequestCounts| [front, cells(counts)].concat();
        let revisions = &self.of.revisions;
        let only = revisions.keys().next().filter(|_| revisions.len() == 1);
        let whole = front(only.map_or("-", String::as_str), self.of.replicas.to_string());
        let mut rows = vec![row(whole, &self.of.all)];
        if revisions.len() > 1 {
            let of_each = revisions.iter();
            rows.extend(of_each.map(|(id, counts)| row(front(id, "-".to_owned()), counts)));
        }
        rows
    }

    fn plain(&self) -> Value {
        let mut item = serde_json::json!({"kind": self.kind, "name": self.name});
        #[expect(clippy::expect_used, reason = "its maps have text keys only")]
        let counts = serde_json::to_value(&self.of).expect("counts are JSON");
        if let (Some(item), Value::Object(counts)) = (item.as_object_mut(), counts) {
            item.extend(counts);
        }
        item
    }
}

fn cells(counts: &RequestCounts) -> Vec<String> {
    let time = |ms: f64| match counts.count {
        0 => "-".to_owned(),
        _ if ms < 10.0 => format!("{} ms", (ms * 10.0).round() / 10.0),
        _ if ms < 10_000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    };
    let times = [counts.p50_ms, counts.p90_ms, counts.p99_ms].map(time);
    let counts = [counts.count, counts.errors].map(|count| count.to_string());
    counts.into_iter().chain(times).collect()
}
