use super::local::{self, failed};
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use images::{Config, Naming, Store};
use std::path::PathBuf;

/// For a root filesystem, which has no configuration of its own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Imports images from a file or folder
///
/// It can be an OCI layout (a folder or its archive), the output of `docker save`, or an archive of
/// a root filesystem. Archives can be compressed with gzip or zstd.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    path: PathBuf,
    /// Name of the image, instead of the names in the archive
    #[arg(long)]
    name: Option<String>,
}

pub(super) fn run(args: Args, store: &Store) -> Result<Exit, Error> {
    let naming = match args.name {
        Some(name) => Naming::As(local::name(&name)?),
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
