//! `holm restore`: fills an empty database from a backup.

use super::config::Place;
use super::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::server::setup;
use crate::term;
use crate::world;
use std::path::PathBuf;
use store::Store;

/// Fills an empty database from a backup
///
/// The backup can come from SQLite or PostgreSQL. A backup that is damaged, or from a newer
/// version, is refused before anything is written.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File that `holm backup` wrote
    file: PathBuf,
    /// Only check the file
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    place: Place,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let config = args.place.load(&[])?;
    let act = format!("read {}", args.file.display());
    std::fs::metadata(&args.file).map_err(Error::reading(act))?;
    let failed = |source| Error::Store { act: format!("restore {}", args.file.display()), source };
    if args.verify {
        store::backup::verify(&args.file).map_err(failed)?;
        term::say("the backup is whole");
        return Ok(Exit::Success);
    }
    setup::make_folder(&config)?;
    let bar = progress::counter("rows");
    let shown = bar.clone();
    let report = move |progress: store::backup::Progress| shown.set_position(progress.rows);
    let restored =
        Store::restore(config.store_settings(), world::system(), &args.file, report).await;
    bar.finish_and_clear();
    let (_store, rows) = restored.map_err(failed)?;
    term::say(format!("{rows} rows restored; start the server with `holm up`"));
    Ok(Exit::Success)
}
