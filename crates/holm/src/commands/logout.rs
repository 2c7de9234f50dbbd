//! `holm logout`: ends the session of a context and forgets it.

use crate::client::choose::context_of;
use crate::client::contexts::{Context, Contexts, Credentials};
use crate::client::{self, Choice, sign_in};
use crate::error::Error;
use crate::exit::Exit;
use crate::term;

/// Forgets the server and credentials in use, or those of --server or --context
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Forget all servers and credentials
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    let names = names(&args, choice)?;
    if names.is_empty() {
        term::note("you were not signed in");
        return Ok(Exit::Success);
    }
    let (gone, now) = Contexts::change(|contexts| {
        let before = contexts.current.clone();
        let gone: Vec<_> = names.iter().filter_map(|name| contexts.remove(name)).collect();
        Ok((gone, contexts.current.clone().filter(|now| before.as_ref() != Some(now))))
    })?;
    for context in &gone {
        end(context).await?;
        term::note(format!("Signed out of {}", context.name));
    }
    if let Some(name) = now {
        term::note(format!("now in use: {name}"));
    }
    Ok(Exit::Success)
}

/// Returns the names of the contexts to sign out of: all of them, or that of the chosen server, or
/// the one in use.
fn names(args: &Args, choice: &Choice) -> Result<Vec<String>, Error> {
    let name = |context: &Context| context.name.clone();
    if args.all {
        // Whoever names one does not expect all others to be forgotten.
        return match choice.server.as_ref().or(choice.context.as_ref()) {
            Some(_) => {
                Err(Error::Usage("--all means all: leave out --server and --context".into()))
            }
            None => Ok(Contexts::load()?.contexts.iter().map(name).collect()),
        };
    }
    let contexts = choice.contexts()?;
    match choice.server() {
        None => Ok(contexts.current().map(name).into_iter().collect()),
        Some(server) => match context_of(&server, &contexts)? {
            Some(context) => Ok(vec![name(context)]),
            None => Err(Error::NoCredentials(format!("you were not signed in to {server}"))),
        },
    }
}

/// Ends the session of a context. If the server is gone for good, the session expires by itself.
async fn end(context: &Context) -> Result<(), Error> {
    let Credentials::Session { refresh_token, account, .. } = &context.credentials else {
        return Ok(());
    };
    let (http, base) = (client::http_client()?, client::base(&context.server)?);
    if sign_in::revoke(&http, &base, refresh_token, account.as_ref()).await.is_err() {
        term::note(format!("{} could not be told; its session ends by itself", context.server));
    }
    Ok(())
}
