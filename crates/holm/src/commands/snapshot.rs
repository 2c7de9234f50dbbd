//! `holm snapshot`: takes snapshots of sandboxes.

use super::progress;
use crate::client::Client;
use crate::client::target::resolve;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term;
use serde_json::{Value, json};

/// Takes a snapshot of a sandbox
///
/// A snapshot has the sandbox's files, not its memory and processes, and outlives the sandbox.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm snapshot box --name before
  holm get snapshots box
  holm fork sbx/box sbx/second --snapshot before")]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// Name, which no other snapshot of the sandbox may have
    #[arg(long)]
    name: Option<String>,
    /// How to show it; by default only its kind and id
    #[arg(short, long, value_enum, default_value_t, hide_default_value = true)]
    output: Format,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let target = resolve(&["sandboxes".into(), args.sandbox, "snapshots".into()])?;
    let body = args.name.map_or_else(|| json!({}), |name| json!({"name": name}));
    let spinner = progress::spinner("taking a snapshot");
    let taken = client.post_slow(&target.collection, &body).await;
    spinner.finish_and_clear();
    let taken = taken?;
    match args.output {
        Format::Table => {
            let id = taken.get("id").and_then(Value::as_str).unwrap_or_default();
            term::say(format!("snapshots/{}", term::harmless(id)));
        }
        format => term::say(output::plain(&[taken], format)),
    }
    Ok(Exit::Success)
}
