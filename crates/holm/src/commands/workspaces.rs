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
use reqwest::Method;
use serde_json::json;

/// Lists your workspaces, or switches to one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace to use from now on
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Make it first
    #[arg(long, requires = "name")]
    create: bool,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) async fn run(args: Args, mut client: Client) -> Result<Exit, Error> {
    match &args.name {
        None => list(args.output, &mut client).await,
        Some(name) if args.create => create(name, &mut client).await,
        Some(name) => switch(name, &mut client).await,
    }
}

async fn list(format: Format, client: &mut Client) -> Result<Exit, Error> {
    let answer = client.get("workspaces", &[]).await?;
    let items = answer.as_array().cloned().unwrap_or_default();
    let now = world::system().now();
    term::say(output::render(kinds::find("workspaces")?, &items, format, now));
    // The one that was chosen may be deleted by now.
    let current = login::names(&answer).find(|name| Some(*name) == client.workspace());
    if let Some(current) = current {
        term::note(format!("in use: {}", term::styled_note(Style::Bold, current)));
    }
    Ok(Exit::Success)
}

async fn create(name: &str, client: &mut Client) -> Result<Exit, Error> {
    client.call(Method::POST, "workspaces", &[], Some(&json!({"name": name}))).await?;
    term::say(format!("workspaces/{name} created"));
    match client.context() {
        Some(context) => enter(name, context)?,
        None => term::note(format!("set HOLM_WORKSPACE to `{name}` to use it")),
    }
    Ok(Exit::Success)
}

async fn switch(name: &str, client: &mut Client) -> Result<Exit, Error> {
    let answer = client.get("workspaces", &[]).await?;
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
    enter(name, client.context().ok_or_else(from_elsewhere)?)?;
    Ok(Exit::Success)
}

/// Makes this the workspace of a context.
fn enter(name: &str, context: &str) -> Result<(), Error> {
    Contexts::change(|contexts| {
        let context = contexts.named_mut(context).ok_or(Error::NotSignedIn)?;
        context.workspace = Some(name.to_owned());
        Ok(())
    })?;
    term::note(format!("now in {name}"));
    Ok(())
}
