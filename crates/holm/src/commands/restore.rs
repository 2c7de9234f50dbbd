//! `holm restore`: fills an empty database from a backup.

use super::config::Place;
use super::progress;
use crate::config::{Config, Role};
use crate::error::Error;
use crate::exit::Exit;
use crate::server::{machine_name, setup};
use crate::term;
use crate::world;
use std::path::PathBuf;
use store::{Store, Tx};

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
    /// Machine of the backup whose place this one takes, if the backup has several
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
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
    let successor = Successor::of(&config, args.machine)?;
    setup::make_folder(&config)?;
    let bar = progress::counter("rows");
    let shown = bar.clone();
    let report = move |progress: store::backup::Progress| shown.set_position(progress.rows);
    let chooser = successor.clone();
    let accept = move |tx: &mut Tx<'_>| chooser.choose(tx).map(drop);
    let (settings, world) = (config.store_settings(), world::system());
    let restored = Store::restore(settings, world, &args.file, accept, report).await;
    bar.finish_and_clear();
    let (store, rows) = restored.map_err(failed)?;
    let chooser = successor.clone();
    let machine = store.read(move |tx| chooser.choose(tx)).await.map_err(failed)?;
    machine.map_or(Ok(()), |machine| successor.succeed(&machine))?;
    term::say(format!("{rows} rows restored; start the server with `holm up`"));
    Ok(Exit::Success)
}

/// A new data folder of a server that runs workloads. It takes the place of a machine of the backup.
/// Folders that have a name keep it, and servers without workloads need none.
#[derive(Clone)]
struct Successor {
    folder: Option<PathBuf>,
    wanted: Option<String>,
}

impl Successor {
    fn of(config: &Config, wanted: Option<String>) -> Result<Self, Error> {
        let folder = &config.data.folder;
        let is_new = config.server.roles.contains(&Role::Node) && !machine_name::is_given(folder);
        if !is_new && wanted.is_some() {
            return Err(Error::Usage(format!(
                "--machine is for a new data folder of a server that runs workloads, which {} is not",
                folder.display()
            )));
        }
        Ok(Self { folder: is_new.then(|| folder.clone()), wanted })
    }

    /// Returns the machine whose place this one takes.
    fn choose(&self, tx: &mut Tx<'_>) -> Result<Option<String>, store::Error> {
        if self.folder.is_none() {
            return Ok(None);
        }
        let known = control::known_machines(tx)?;
        machine_name::choose(&known, self.wanted.as_deref()).map_err(store::Error::Unusable)
    }

    fn succeed(&self, machine: &str) -> Result<(), Error> {
        let Some(folder) = &self.folder else { return Ok(()) };
        // Two servers of one name would stop each other's instances.
        if machine_name::is_in_use(machine) {
            term::note(format!(
                "something of the machine {machine} runs here, so this server gets a name of its own, and does not run \
                 what the backup has on {machine}"
            ));
            return Ok(());
        }
        machine_name::write(folder, machine)?;
        term::note(format!("this machine takes the place of {machine}"));
        Ok(())
    }
}
