//! `holm connect`: a terminal in a sandbox.

use crate::client::workload::Workload;
use crate::client::{Client, target};
use crate::error::Error;
use crate::exit::Exit;
use crate::terminal::{self, Ask};

/// Opens a terminal in a sandbox
///
/// Ctrl-P Ctrl-Q detaches and leaves programs running; a terminal that nobody watches is closed
/// after ten minutes. The command ends when the shell ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm connect box
  holm connect box --shell /bin/bash -C /app
  holm connect box --session pair      # whoever names the same session sees the same terminal")]
pub(crate) struct Args {
    /// Name of the sandbox
    sandbox: String,
    /// Name of the terminal session to share; a new one by default
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Program for a new terminal; by default the sandbox chooses
    #[arg(long, value_name = "PROGRAM")]
    shell: Option<String>,
    /// Working folder of a new terminal
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
