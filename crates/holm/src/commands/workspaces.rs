//! `holm workspaces`: lists the user's workspaces, and switches between them.

use super::login;
use crate::client::Client;
use crate::client::contexts::Contexts;
use crate::client::kinds;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term::{self, Style};
use crate::world;

/// Lists your workspaces, or switches to one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace to use from now on
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    let answer = client.get("workspaces", &[]).await?;
    let Some(name) = args.name else {
        let items = answer.as_array().cloned().unwrap_or_default();
        term::say(output::render(
            kinds::find("workspaces")?,
            &items,
            args.output,
            world::system().now(),
        ));
        if let Some(current) = client.workspace() {
            term::note(format!("in use: {}", term::styled_note(Style::Bold, current)));
        }
        return Ok(Exit::Success);
    };
    if !login::names(&answer).any(|known| known == name) {
        let known: Vec<_> = login::names(&answer).collect();
        return Err(Error::Absent(format!(
            "you have no workspace `{name}`; yours: {}",
            known.join(", ")
        )));
    }
    let from_elsewhere = || {
        Error::Usage(format!(
            "the credentials come from the environment: set HOLM_WORKSPACE to `{name}` there"
        ))
    };
    let own = client.context().ok_or_else(from_elsewhere)?;
    Contexts::change(|contexts| {
        let context = contexts.named_mut(own).ok_or(Error::NotSignedIn)?;
        context.workspace = Some(name.clone());
        Ok(())
    })?;
    term::note(format!("now in {name}"));
    Ok(Exit::Success)
}
