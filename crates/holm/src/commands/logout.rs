//! `holm logout`: forgets the current context.

use crate::client::contexts::{Contexts, Credentials};
use crate::client::{self, sign_in};
use crate::error::Error;
use crate::exit::Exit;
use crate::term;

/// Forgets the server and credentials in use
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Forget all servers and credentials
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    if Contexts::load()?.current().is_none() {
        term::note("you were not signed in");
        return Ok(Exit::Success);
    }
    let gone = Contexts::change(|contexts| {
        let mut gone = Vec::new();
        while let Some(context) = contexts.remove_current() {
            gone.push(context);
            if !args.all {
                break;
            }
        }
        Ok(gone)
    })?;
    for context in gone {
        if let Credentials::Session { refresh_token, account, .. } = &context.credentials {
            // If the server is gone for good, the session expires by itself.
            let (http, base) = (client::http_client()?, client::base(&context.server)?);
            let account = account.as_ref();
            if sign_in::revoke(&http, &base, refresh_token, account).await.is_err() {
                term::note(format!(
                    "{} could not be told; its session ends by itself",
                    context.server
                ));
            }
        }
        term::note(format!("Signed out of {}", context.name));
    }
    Ok(Exit::Success)
}
