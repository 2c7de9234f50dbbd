//! `holm revisions`: lists the revisions of a deployment.

use crate::client::{Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::{term, world};

/// Shows the revisions of an agent, application, function, job or model
///
/// Use `holm rollback` to make an earlier one serve again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm revisions agent helper
  holm revisions app shop -o json")]
pub(crate) struct Args {
    /// agent, application, function, job or model
    kind: String,
    /// Name of the object
    name: String,
    /// How to show them; `json` is always a list
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let target = target::resolve(&[args.kind, args.name, "revisions".into()])?;
    let revisions = client.list(&target, &[]).await?;
    let now = world::system().now();
    term::say(output::render(target.kind, &revisions, args.output, now));
    Ok(Exit::Success)
}
