use super::failed;
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use images::{Config, Naming, Store};
use std::path::PathBuf;

/// Of a root filesystem, which says nothing of itself.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Imports images from a file or folder
///
/// It may be an OCI layout (a folder or its archive), what `docker save` writes, or the archive of
/// a root filesystem. Archives may be packed with gzip or zstd.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    path: PathBuf,
    /// Name of the image, instead of the names that the archive says
    #[arg(long)]
    name: Option<String>,
}

pub(super) fn run(args: Args, store: &Store) -> Result<Exit, Error> {
    let naming = match args.name {
        Some(name) => Naming::As(super::name(&name)?),
        None => Naming::Own,
    };
    let config = Config { env: [("PATH".to_owned(), PATH.to_owned())].into(), ..Config::default() };
    let spinner = progress::spinner("importing");
    let imported = store.import(&args.path, &naming, &config);
    spinner.finish_and_clear();
    let act = format!("import {}", args.path.display());
    for image in imported.map_err(|error| failed(&act, &error))? {
        term::say(format!("{} {}", image.name, image.digest));
    }
    Ok(Exit::Success)
}
