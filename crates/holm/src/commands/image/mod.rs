//! `holm image`: manages the images of this machine, even while a server uses them.

mod import;
mod list;
mod local;
mod make;
mod pull;
mod remove;

use super::config::Place;
use crate::error::Error;
use crate::exit::Exit;
use local::failed;

/// Makes, lists, imports, pulls and removes images on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    Make(make::Args),
    List(list::Args),
    Import(import::Args),
    Pull(pull::Args),
    Remove(remove::Args),
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let config = args.place.load(&[])?;
    // All but downloads use processor and disk, and would block the runtime.
    let work = move || {
        let store = local::open(&config)?;
        match args.act {
            Act::Make(args) => make::run(args, &store),
            Act::List(args) => list::run(&args, &store),
            Act::Import(args) => import::run(args, &store),
            Act::Remove(args) => remove::run(&args, &store),
            Act::Pull(args) => tokio::runtime::Handle::current().block_on(pull::run(args, &store)),
        }
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| failed("work with images", &error))?
}
