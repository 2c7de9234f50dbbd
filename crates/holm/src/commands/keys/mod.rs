//! `holm keys`: API keys, and the keys that seal secrets in the database.

mod api;

use super::config::Place;
use super::progress;
use crate::client::{Choice, Client};
use crate::config::Config;
use crate::error::Error;
use crate::exit::Exit;
use crate::server::{addresses, setup};
use crate::term;
use reqwest::Method;

/// Manages API keys, and the keys that seal secrets in the database
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Makes a new key, and seals all secrets with it
    ///
    /// If a server is running, it does the work. Keep a copy of the key file: without it no secret
    /// can be read.
    Rotate,
    Create(api::Create),
    /// Lists your API keys
    List(api::List),
    /// Revokes an API key at once
    Revoke(api::Revoke),
}

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    match args.act {
        Act::Rotate => rotate_here(args.place, choice).await,
        Act::Create(create) => api::create(create, Client::choose(choice)?).await,
        Act::List(list) => api::list(list, Client::choose(choice)?).await,
        Act::Revoke(revoke) => api::revoke(revoke, Client::choose(choice)?).await,
    }
}

async fn rotate_here(place: Place, choice: &Choice) -> Result<Exit, Error> {
    let config = place.load(&[])?;
    setup::must_have_keys(&config)?;
    let spinner = progress::spinner("sealing secrets with the new key");
    let rotated = rotate(&config, choice).await;
    spinner.finish_and_clear();
    let (key, rows) = rotated?;
    term::say(format!("key {key} is in use; {rows} rows were sealed anew"));
    term::note(format!("keep a copy of {}", config.key_file().display()));
    Ok(Exit::Success)
}

/// Rotates the keys in the database, or asks the server to do so if it has the database open.
async fn rotate(config: &Config, choice: &Choice) -> Result<(String, u64), Error> {
    match setup::open_store(config).await {
        Ok(store) => {
            let rotated = store.rotate_keys().await;
            let rotation =
                rotated.map_err(|source| Error::Store { act: "rotate the keys".into(), source })?;
            Ok((rotation.active, rotation.rows))
        }
        Err(locked @ Error::Store { source: store::Error::Unusable(_), .. }) => {
            let mut client = client_of_running(config, choice, locked)?;
            let answer = client.call(Method::POST, "/v0/seal_keys/rotate", &[], None).await?;
            match (answer["key"].as_str(), answer["rows"].as_u64()) {
                (Some(key), Some(rows)) => Ok((key.to_owned(), rows)),
                _ => Err(Error::Start {
                    act: "rotate the keys".into(),
                    message: "the server's answer does not name the new key".into(),
                }),
            }
        }
        Err(other) => Err(other),
    }
}

/// Returns a client of the server that runs on this data, and of no other: another server would
/// rotate the keys of its own data.
fn client_of_running(config: &Config, choice: &Choice, locked: Error) -> Result<Client, Error> {
    let own = addresses::of_running(config);
    let Some(first) = own.first() else { return Err(locked) };
    match Client::choose(choice) {
        Ok(client) if own.iter().any(|url| client.is_of(url)) => Ok(client),
        _ => Err(Error::Start {
            act: "rotate the keys".into(),
            message: format!(
                "a server runs on this data at {first}: sign in to it (`holm login --server \
                 {first}`, or --server with HOLM_API_KEY) and repeat the command, or stop it first"
            ),
        }),
    }
}
