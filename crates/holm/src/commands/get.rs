//! `holm get`: shows objects of any kind.

use crate::client::Client;
use crate::client::kinds;
use crate::client::lines::{Lines, Stopped};
use crate::client::target::{Target, resolve};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term;
use crate::world;
use reqwest::StatusCode;
use serde_json::Value;
use std::time::Duration;

/// Shows objects
///
/// KIND is a kind such as `sandboxes` or `sbx`. For kinds below another object, name that first:
/// `holm get sandbox box previews`, `holm get job nightly executions`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Examples:
  holm get sandboxes
  holm get sandbox box -o yaml           # as `holm apply` reads it
  holm get agents --status FAILED,DEPLOYING --sort name:asc
  holm get job nightly executions --watch

{}", kinds::help()))]
pub(crate) struct Args {
    /// Kind, then name, then a kind below it, and so on
    #[arg(required = true, value_name = "KIND [NAME]")]
    words: Vec<String>,
    /// How to show them; `json` is always a list
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Show them again whenever they change, until interrupted
    #[arg(long)]
    watch: bool,
    /// Only those with this text in their name or labels
    #[arg(short, value_name = "TEXT")]
    query: Option<String>,
    /// Only those with this status, such as DEPLOYED; separate several with commas
    #[arg(long)]
    status: Option<String>,
    /// Order of the list
    #[arg(long, value_parser = ["createdAt:desc", "createdAt:asc", "name:asc", "name:desc"])]
    sort: Option<String>,
    /// Only those with this external id
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Show the secrets of one object in clear text, if your role allows it; lists never show them
    #[arg(long)]
    show_secrets: bool,
}

/// How often a server without a change stream is polled.
const POLL: Duration = Duration::from_secs(2);
/// Changes that come in a burst are shown together.
const SETTLE: Duration = Duration::from_millis(100);

/// Reads `snapshots BOX` as the snapshots of that sandbox, unless BOX is the id of a snapshot.
fn of_sandbox(words: &[String]) -> Vec<String> {
    match words {
        [kind, name]
            if matches!(kind.as_str(), "snapshots" | "snapshot") && !name.starts_with("snap_") =>
        {
            vec!["sandboxes".to_owned(), name.clone(), "snapshots".to_owned()]
        }
        words => words.to_vec(),
    }
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let target = resolve(&of_sandbox(&args.words))?;
    let mut shown = fetch(&args, &target, &mut client).await?;
    show(&args, &target, &shown);
    if !args.watch {
        return Ok(Exit::Success);
    }
    let mut changes = open_changes(&mut client).await?;
    loop {
        changes = next_change(changes, &mut client).await?;
        let now = client.with_retries(async |client| fetch(&args, &target, client).await).await?;
        if now != shown {
            term::say("");
            show(&args, &target, &now);
            shown = now;
        }
    }
}

async fn fetch(args: &Args, target: &Target, client: &mut Client) -> Result<Vec<Value>, Error> {
    let mut query = Vec::new();
    if args.show_secrets {
        query.push(("show_secrets", "true"));
    }
    if let Some(name) = &target.name {
        return Ok(vec![client.one(target, name, &query).await?]);
    }
    let filters = [
        ("q", &args.query),
        ("status", &args.status),
        ("sort", &args.sort),
        ("externalId", &args.external_id),
    ];
    query.extend(
        filters.iter().filter_map(|(name, value)| value.as_deref().map(|value| (*name, value))),
    );
    client.list(target, &query).await
}

fn show(args: &Args, target: &Target, items: &[Value]) {
    if items.is_empty() && args.output == Format::Table {
        term::note(format!("no {} here", target.kind.name()));
        return;
    }
    term::say(output::render(target.kind, items, args.output, world::system().now()));
}

/// How the command learns of changes.
enum Changes {
    /// The server sends them.
    Told(Lines),
    /// The server offers us no change stream, so it is polled.
    Polled,
}

async fn open_changes(client: &mut Client) -> Result<Changes, Error> {
    match client.stream("changes", &[]).await {
        Ok(response) => Ok(Changes::Told(Lines::new(response, None))),
        Err(Error::Answer {
            status: StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED | StatusCode::FORBIDDEN,
            ..
        }) => Ok(Changes::Polled),
        Err(error) => Err(error),
    }
}

/// Waits until something may have changed. If the stream ends it is opened again, and then
/// everything is read again, so nothing is missed in between.
async fn next_change(changes: Changes, client: &mut Client) -> Result<Changes, Error> {
    let Changes::Told(mut lines) = changes else {
        tokio::time::sleep(POLL).await;
        return Ok(Changes::Polled);
    };
    if next_event(&mut lines).await.is_err() {
        tokio::time::sleep(POLL).await;
        return client.with_retries(open_changes).await;
    }
    // Takes the rest of a burst. If the stream ends meanwhile, the next call finds that out.
    let rest = async { while next_event(&mut lines).await.is_ok() {} };
    let _ = tokio::time::timeout(SETTLE, rest).await;
    Ok(Changes::Told(lines))
}

/// Waits for the data of an event. Comment lines only keep the connection open.
async fn next_event(lines: &mut Lines) -> Result<(), Stopped> {
    while !lines.next().await?.starts_with("data:") {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    #[tokio::test]
    async fn an_event_is_seen_however_its_bytes_arrive() {
        let pieces = [": still here\n\nda", "ta: {}\n", "\n", ": still here\n\n"];
        let pieces = stream::iter(pieces.map(Ok::<_, std::io::Error>));
        let answer = http::Response::new(reqwest::Body::wrap_stream(pieces));
        let mut lines = Lines::new(answer.into(), None);
        assert!(next_event(&mut lines).await.is_ok());
        assert!(matches!(next_event(&mut lines).await, Err(Stopped::Ended)));
    }
}
