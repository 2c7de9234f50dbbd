//! `holm token`: prints a bearer token for other programs.

use crate::client::Client;
use crate::error::Error;
use crate::exit::Exit;
use crate::term;

/// Prints a valid bearer token, for use by other programs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(Args {}: Args, mut client: Client) -> Result<Exit, Error> {
    // Checked here, since a bad token would only fail later and elsewhere.
    match client.workspace().map(str::to_owned) {
        Some(workspace) => client.get(&format!("workspaces/{workspace}"), &[]).await?,
        None => client.get("workspaces", &[]).await?,
    };
    let bearer = client.bearer().await?;
    term::say(bearer);
    Ok(Exit::Success)
}
