//! `holm describe`: shows one object in detail, with its events.

use crate::client::kinds::Kind;
use crate::client::target::{self, Target};
use crate::client::{Client, kinds};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term::{self, Style};
use crate::world;
use serde_json::Value;
use types::Timestamp;

/// Shows one object with its events and, if it has any, its revisions
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm describe agent helper
  holm describe sandbox box preview main

`holm get --help` lists the kinds.")]
pub(crate) struct Args {
    /// Kind and name, then a kind below it and its name, and so on
    #[arg(required = true, value_name = "KIND NAME")]
    words: Vec<String>,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let target = target::resolve(&args.words)?;
    let Some(name) = target.name.clone() else {
        let (kind, words) = (target.kind.name(), args.words.join(" "));
        return Err(Error::Usage(format!("name one of the {kind}; `holm get {words}` lists them")));
    };
    let object = client.one(&target, &name, &[]).await?;
    let now = world::system().now();
    term::say(head(target.kind, &object, now));
    if let Some(spec) = object.get("spec") {
        section("Spec", &indented(&output::plain(std::slice::from_ref(spec), Format::Yaml)));
    }
    if let Some(revisions) = revisions(&target, &name, &mut client).await? {
        section("Revisions", &revisions);
    }
    if let Some(events) = object.get("events").and_then(Value::as_array) {
        section("Events", &table_of(events, now));
    }
    Ok(Exit::Success)
}

const URL: &str = "URL";

/// Returns the columns of the kind, one per line, and the address if it has one.
fn head(kind: &Kind, object: &Value, now: Timestamp) -> String {
    let mut row = output::row(kind, object, now);
    let mut headings: Vec<_> = kind.columns.iter().map(|column| column.heading).collect();
    let url = object.pointer("/metadata/url").and_then(Value::as_str);
    if let Some(url) = url.filter(|url| !url.is_empty() && !headings.contains(&URL)) {
        headings.push(URL);
        row.push(term::harmless(url));
    }
    let wide = headings.iter().map(|heading| heading.len()).max().unwrap_or_default();
    let line = |(heading, cell): (&str, String)| {
        let heading = term::styled(Style::Bold, format!("{heading:<wide$}"));
        format!("{heading}  {cell}")
    };
    headings.into_iter().zip(row).map(line).collect::<Vec<_>>().join("\n")
}

fn section(heading: &str, text: &str) {
    if !text.is_empty() {
        term::say(format!("\n{}\n{text}", term::styled(Style::Bold, heading)));
    }
}

fn indented(text: &str) -> String {
    let line = |line: &str| format!("  {}", term::harmless(line));
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the revisions as `holm revisions` shows them.
async fn revisions(
    target: &Target,
    name: &str,
    client: &mut Client,
) -> Result<Option<String>, Error> {
    let below = kinds::find("revisions")?;
    let kinds::Place::Below { of, .. } = below.place else { return Ok(None) };
    if !of.contains(&target.kind.name()) {
        return Ok(None);
    }
    let words = [target.kind.name(), name, "revisions"].map(str::to_owned);
    let revisions = client.list(&target::resolve(&words)?, &[]).await?;
    let now = world::system().now();
    let shown = || output::render(below, &revisions, Format::Table, now);
    Ok((!revisions.is_empty()).then(shown))
}

/// Returns a table of events, oldest first.
fn table_of(events: &[Value], now: Timestamp) -> String {
    if events.is_empty() {
        return String::new();
    }
    let heading = ["TIME", "TYPE", "STATUS", "REVISION", "MESSAGE"].map(str::to_owned);
    let text = |event: &Value, name: &str| event.get(name)?.as_str().map(str::to_owned);
    let row = |event: &Value| {
        let then = text(event, "time").and_then(|time| time.parse().ok());
        let revision = text(event, "revision").or_else(|| text(event, "canaryRevision"));
        let cells = [
            then.map(|then: Timestamp| output::age(now.since(then))),
            text(event, "type"),
            text(event, "status"),
            revision,
            text(event, "message"),
        ];
        let cell = |cell: Option<String>| {
            let cell = cell.filter(|cell| !cell.is_empty()).unwrap_or_else(|| "-".to_owned());
            term::harmless(&cell).replace(['\n', '\t'], " ")
        };
        cells.map(cell).to_vec()
    };
    output::lines(&heading, events.iter().map(row))
}
