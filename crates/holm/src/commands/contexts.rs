//! `holm contexts`: lists the servers and accounts that `holm login` has stored, and switches between
//! them.

use crate::client::contexts::{Context, Contexts};
use crate::client::{Choice, Client};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, Format};
use crate::term::{self, Style};
use serde_json::{Value, json};

/// Lists the servers and accounts that you are signed in to, or switches to one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The one to use from now on
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(crate) fn run(args: &Args, choice: &Choice) -> Result<Exit, Error> {
    if let Some(name) = &args.name {
        Contexts::change(|contexts| contexts.select(name).map(|_| ()))?;
        term::note(format!("now in use: {name}"));
        if in_use(choice).as_ref() != Some(name) {
            term::note("here --context, HOLM_CONTEXT, HOLM_URL or HOLM_API_KEY chooses another");
        }
        return Ok(Exit::Success);
    }
    let contexts = Contexts::load()?.contexts;
    match args.output {
        Format::Table if contexts.is_empty() => return Err(Error::NotSignedIn),
        Format::Table => {
            let heading = ["NAME", "SERVER", "WORKSPACE"].map(str::to_owned);
            term::say(output::lines(&heading, contexts.iter().map(row)));
        }
        format => {
            let items: Vec<_> = contexts.iter().map(item).collect();
            term::say(output::plain(&items, format));
        }
    }
    if let Some(name) = in_use(choice) {
        term::note(format!("in use: {}", term::styled_note(Style::Bold, name)));
    }
    Ok(Exit::Success)
}

/// Returns the context that a command would use now; none if its credentials come from variables.
fn in_use(choice: &Choice) -> Option<String> {
    Client::choose(choice).ok()?.context().map(str::to_owned)
}

fn row(context: &Context) -> Vec<String> {
    let workspace = context.workspace.as_deref().unwrap_or("-");
    [&context.name, &context.server, workspace].map(term::harmless).to_vec()
}

/// Returns what may be shown of a context, which is all but its credentials.
fn item(context: &Context) -> Value {
    json!({"name": context.name, "server": context.server, "workspace": context.workspace})
}
