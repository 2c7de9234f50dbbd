//! `holm keys`: the keys that seal secrets in the database.

use super::config::Place;
use super::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::server::setup;
use crate::term;

/// Manages the keys that seal secrets in the database
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Makes a new key and brings all secrets under it
    ///
    /// With SQLite stop the server first. Keep a copy of the key file: without it no secret can be read.
    Rotate(Place),
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let Act::Rotate(place) = args.act;
    let config = place.load(&[])?;
    setup::must_have_keys(&config)?;
    let store = setup::open_store(&config).await?;
    let spinner = progress::spinner("sealing secrets with the new key");
    let rotated = store.rotate_keys().await;
    spinner.finish_and_clear();
    let rotation = rotated.map_err(|source| Error::Store { act: "rotate the keys".into(), source })?;
    term::say(format!("key {} is in use; {} rows were sealed anew", rotation.active, rotation.rows));
    term::note(format!("keep a copy of {}", config.key_file().display()));
    Ok(Exit::Success)
}
