//! `holm archive` and `holm unarchive`: sandboxes whose files are kept while they do not run.

use super::deploy::follow::{reason, status_of};
use super::progress;
use crate::client::Client;
use crate::client::target::resolve;
use crate::duration::Span;
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::Ends;
use crate::term::{self, Style};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Archives a sandbox: keeps its files, frees its instance and memory
///
/// Processes and memory are not kept. Waits until the sandbox is archived.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// How long to wait
    #[arg(long, default_value = "30m", value_name = "LENGTH")]
    timeout: Span,
}

/// Restores an archived sandbox with its files
#[derive(Debug, clap::Args)]
pub(crate) struct BackArgs {
    /// Name of the sandbox
    sandbox: String,
    /// How long to wait
    #[arg(long, default_value = "30m", value_name = "LENGTH")]
    timeout: Span,
}

/// A transition of a sandbox and how it is shown.
struct Way {
    act: &'static str,
    message: &'static str,
    meanwhile: &'static [&'static str],
    end: &'static str,
}

const ARCHIVE: Way =
    Way { act: "archive", message: "archiving", meanwhile: &["ARCHIVING"], end: "ARCHIVED" };
const UNARCHIVE: Way = Way {
    act: "unarchive",
    message: "bringing it back",
    meanwhile: &["UNARCHIVING", "DEPLOYING"],
    end: "DEPLOYED",
};

const POLL: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    go(&ARCHIVE, &args.sandbox, args.timeout.0, client).await
}

pub(crate) async fn run_back(args: BackArgs, client: Client) -> Result<Exit, Error> {
    go(&UNARCHIVE, &args.sandbox, args.timeout.0, client).await
}

async fn go(
    way: &Way,
    sandbox: &str,
    longest: Duration,
    mut client: Client,
) -> Result<Exit, Error> {
    let object = resolve(&["sandboxes".into()])?.object(sandbox)?;
    let mut ends = Ends::new()?;
    let spinner = progress::spinner(way.message);
    client.post_slow(&format!("{object}/{}", way.act), &json!({})).await?;
    let done = tokio::select! {
        done = wait(way, &object, longest, &mut client) => done,
        () = ends.next() => {
            spinner.finish_and_clear();
            term::note("what was begun goes on");
            return Ok(Exit::Interrupted);
        }
    };
    spinner.finish_and_clear();
    done?;
    let status = term::styled_note(Style::Good, way.end);
    term::note(format!("sandboxes/{} {status}", term::harmless(sandbox)));
    Ok(Exit::Success)
}

async fn wait(
    way: &Way,
    object: &str,
    longest: Duration,
    client: &mut Client,
) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let now = client.get_with_retries(object).await?;
        match status_of(&now) {
            status if status == way.end => return Ok(()),
            status if !way.meanwhile.contains(&status) => {
                let why = reason(&now).unwrap_or_else(|| "the server gives no reason".into());
                let status = term::harmless(status);
                return Err(Error::Failed(format!("the sandbox is {status}: {why}")));
            }
            _ if begun.elapsed() > longest => {
                return Err(Error::Failed(format!("it is not {} yet", way.end)));
            }
            _ => sleep(POLL).await,
        }
    }
}
