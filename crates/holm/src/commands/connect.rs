//! `holm connect`: a terminal in a sandbox.

use crate::client::workload::Workload;
use crate::client::{Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::terminal::{self, Ask};

/// Opens a terminal in a sandbox
///
/// Ctrl-P Ctrl-Q leaves it and lets what runs go on; a terminal that nobody looks at is closed after
/// ten minutes. It ends when its shell ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm connect box
  holm connect box --shell /bin/bash -C /app
  holm connect box --session pair      # whoever names the same session sees the same terminal")]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// Name of the terminal; one of its own otherwise
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Program to run on a new terminal; the sandbox chooses otherwise
    #[arg(long, value_name = "PROGRAM")]
    shell: Option<String>,
    /// Folder in which a new terminal begins
    #[arg(short = 'C', long, value_name = "FOLDER")]
    workdir: Option<String>,
}

pub(crate) async fn run(args: Args, client: Client) -> Result<Exit, Error> {
    let target = target::resolve(&["sandboxes".into(), args.sandbox.clone()])?;
    terminal::check()?;
    let sandbox = Workload::find(client, &target).await?;
    let session = args.session.unwrap_or_else(|| terminal::new_session(&sandbox));
    let ask = Ask { session, shell: args.shell, workdir: args.workdir };
    terminal::connect(&sandbox, &ask).await
}
