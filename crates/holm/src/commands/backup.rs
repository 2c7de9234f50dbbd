//! `holm backup`: saves all state to one file while the server runs.

use super::config::Place;
use super::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::output;
use crate::server::setup;
use crate::term;
use crate::world;
use std::path::PathBuf;
use store::Store;

/// Saves all state to one file, while the server runs
///
/// The file is a consistent snapshot. Restore it with `holm restore`, into SQLite or PostgreSQL.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// New file to write
    file: PathBuf,
    /// Include the keys that open the secrets; keep such a file as safe as the keys themselves
    #[arg(long)]
    with_keys: bool,
    #[command(flatten)]
    place: Place,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Error> {
    let config = args.place.load(&[])?;
    if args.file.exists() {
        // An older backup is worth more than the convenience.
        let file = args.file.display();
        return Err(Error::Taken(format!("{file} exists already: name a new file")));
    }
    let failed =
        |source| Error::Store { act: format!("write the backup {}", args.file.display()), source };
    let mut settings = config.store_settings();
    settings.reads_beside = true;
    setup::must_have_keys(&config)?;
    let store = Store::open(settings, world::system()).await.map_err(failed)?;
    let bar = progress::counter("rows");
    let shown = bar.clone();
    let written = store
        .backup(&args.file, args.with_keys, move |progress| shown.set_position(progress.rows))
        .await;
    bar.finish_and_clear();
    let rows = written.map_err(failed)?;
    let bytes = std::fs::metadata(&args.file).map_or(0, |about| about.len());
    term::say(format!("{} rows, {} in {}", rows, output::size(bytes), args.file.display()));
    if !args.with_keys {
        term::note(format!("the secrets in it need the key file {}", config.key_file().display()));
    }
    Ok(Exit::Success)
}
