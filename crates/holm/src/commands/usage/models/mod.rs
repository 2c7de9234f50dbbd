//! `holm usage models`: shows the usage of models.

mod export;

use super::figures::{bar, grouped, money};
use super::file::Form;
use super::window::Window;
use crate::client::Client;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term::{self, Style};
use crate::world;
use std::path::PathBuf;
use types::Timestamp;
use types::wire::{ModelUsage, ModelUsageBy, ModelUsageEntry, ModelUsageResolution};

const NOTHING: &str = "-";

/// Shows the usage of models: calls, tokens and cost
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm usage models
  holm usage models gpt --by key,endUser --from 7d
  holm usage models --from 2026-04-01 --to 2026-05-01 --file april.csv")]
pub(crate) struct Args {
    /// Only this model; by default all in the workspace
    model: Option<String>,
    #[command(flatten)]
    window: Window,
    /// How to group usage, by some of: model, key, endUser, tag, provider, providerModel; by
    /// default all of them in a file
    #[arg(long, value_name = "LIST")]
    by: Option<String>,
    /// Length of the steps; by default daily in a file, else a single step
    #[arg(long, value_parser = ["hourly", "daily", "total"])]
    resolution: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// New file to write instead
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Format of the file; by default from the end of its name
    #[arg(long, value_enum, requires = "file")]
    format: Option<Form>,
}

/// What to ask for.
#[derive(Debug, Clone)]
struct Question {
    model: Option<String>,
    start: Timestamp,
    end: Timestamp,
    by: String,
    resolution: String,
}

pub(super) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let (start, end) = args.window.read(world::system().now())?;
    let is_file = args.file.is_some();
    let all = || ModelUsageBy::ALL.map(ModelUsageBy::name).join(",");
    let by = args.by.unwrap_or_else(|| if is_file { all() } else { "model".to_owned() });
    let resolution = args
        .resolution
        .unwrap_or_else(|| if is_file { "daily".to_owned() } else { "total".to_owned() });
    let question = Question { model: args.model, start, end, by, resolution };
    if let Some(file) = &args.file {
        return export::run(file, args.format, &question, &mut client).await;
    }
    let usage = ask(&question, &mut client).await?;
    match args.output {
        Format::Table => table(&usage),
        format => {
            #[expect(clippy::expect_used, reason = "its maps have text keys only")]
            let item = |entry| serde_json::to_value(entry).expect("an entry is JSON");
            let items: Vec<_> = usage.data.iter().map(item).collect();
            term::say(output::plain(&items, format));
        }
    }
    Ok(Exit::Success)
}

async fn ask(question: &Question, client: &mut Client) -> Result<ModelUsage, Error> {
    let (start, end) = (question.start.to_string(), question.end.to_string());
    let query = [
        ("start", start.as_str()),
        ("end", end.as_str()),
        ("groupBy", question.by.as_str()),
        ("resolution", question.resolution.as_str()),
    ];
    let path = match &question.model {
        None => "usage/models".to_owned(),
        Some(name) if is_name(name) => format!("models/{name}/usage"),
        Some(name) => return Err(Error::Usage(format!("`{name}` is no name of a model"))),
    };
    let answer = client.get(&path, &query).await?;
    serde_json::from_value(answer).map_err(|error| Error::NotHolm {
        server: client.server(),
        message: format!("its usage cannot be read: {error}"),
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn table(usage: &ModelUsage) {
    let has_steps = usage.resolution != ModelUsageResolution::Total;
    let mut heading: Vec<_> = has_steps.then(|| "TIME".to_owned()).into_iter().collect();
    heading.extend(usage.group_by.iter().map(|by| title(*by).to_owned()));
    let sums = ["CALLS", "FAILED", "INPUT", "CACHED", "OUTPUT", "REASONING", "COST", "SHARE"];
    heading.extend(sums.map(str::to_owned));
    let mut entries: Vec<_> = usage.data.iter().collect();
    if !has_steps {
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.sum.cost_nanodollars));
    }
    if entries.is_empty() {
        term::note("no model was used");
    } else {
        term::say(output::lines(&heading, entries.into_iter().map(|entry| row(entry, usage))));
    }
    let total = &usage.total;
    let cost = term::styled(Style::Bold, money(total.cost));
    let tokens = grouped(total.total_tokens as f64, 0);
    let (start, end) = (usage.start, usage.end);
    let calls = output::counted(total.calls, "call");
    term::say(format!("{start} to {end}: {calls}, {tokens} tokens, {cost}"));
    if total.estimated_calls > 0 {
        term::note(format!(
            "the tokens of {} are estimates, because the provider did not report them",
            output::counted(total.estimated_calls, "call")
        ));
    }
}

fn row(entry: &ModelUsageEntry, usage: &ModelUsage) -> Vec<String> {
    let mut row = Vec::new();
    if usage.resolution != ModelUsageResolution::Total {
        row.push(entry.timestamp.to_string());
    }
    row.extend(usage.group_by.iter().map(|by| {
        let text = Some(member(entry, *by)).filter(|text| !text.is_empty()).unwrap_or(NOTHING);
        term::harmless(text).replace(['\n', '\t'], " ")
    }));
    let sum = &entry.sum;
    let counts = [
        sum.calls,
        sum.failed_calls,
        sum.input_tokens,
        sum.cached_tokens,
        sum.output_tokens,
        sum.reasoning_tokens,
    ];
    row.extend(counts.map(|count| grouped(count as f64, 0)));
    row.push(money(sum.cost));
    row.push(bar(sum.cost, usage.total.cost));
    row
}

const fn title(by: ModelUsageBy) -> &'static str {
    match by {
        ModelUsageBy::Model => "MODEL",
        ModelUsageBy::Key => "KEY",
        ModelUsageBy::EndUser => "END USER",
        ModelUsageBy::Tag => "TAG",
        ModelUsageBy::Provider => "PROVIDER",
        ModelUsageBy::ProviderModel => "PROVIDER'S MODEL",
    }
}

fn member(entry: &ModelUsageEntry, by: ModelUsageBy) -> &str {
    let member = match by {
        ModelUsageBy::Model => &entry.model,
        ModelUsageBy::Key => &entry.key,
        ModelUsageBy::EndUser => &entry.end_user,
        ModelUsageBy::Tag => &entry.tag,
        ModelUsageBy::Provider => &entry.provider,
        ModelUsageBy::ProviderModel => &entry.provider_model,
    };
    member.as_deref().unwrap_or_default()
}
