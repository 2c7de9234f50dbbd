//! `holm user`: helps users who can no longer sign in.

use super::config::Place;
use crate::error::Error;
use crate::exit::Exit;
use crate::server::{assembly, setup};
use crate::term;
use crate::world;
use std::io::BufRead;

/// Helps users who can no longer sign in
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Sets a user's password
    ///
    /// By default a new password is generated and printed. With SQLite, stop the server first.
    Password {
        /// E-mail address of the user
        email: String,
        /// Read the password from standard input instead
        #[arg(long)]
        stdin: bool,
    },
}

/// Length of a generated password, which is 100 random bits.
const LENGTH: usize = 20;
/// Name of the actor in the change log.
const ACTOR: &str = "holm user password";

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let Act::Password { email, stdin } = args.act;
    let config = args.place.load(&[])?;
    setup::must_have_keys(&config)?;
    let world = world::system();
    let store = setup::open_store(&config).await?;
    let auth = assembly::auth(&config, &store, &world, &config.server.public_url).await?;
    let password = if stdin { read_line()? } else { world.random_text(LENGTH) };
    let done = auth.set_password(&email, password.clone(), ACTOR).await;
    done.map_err(|error| match error {
        auth::Error::NotFound { .. } => Error::Absent(error.to_string()),
        error => {
            Error::Start { act: format!("set the password of {email}"), message: error.to_string() }
        }
    })?;
    if !stdin {
        term::say(password);
    }
    term::note(format!("{email} can sign in with the new password"));
    Ok(Exit::Success)
}

fn read_line() -> Result<String, Error> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Error::io("read standard input"))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
