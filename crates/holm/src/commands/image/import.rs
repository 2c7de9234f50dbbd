//! `holm image import`: imports images from files and folders.

use super::local::{self, failed};
use crate::commands::progress;
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use images::{Config, Error as Broken, Naming, Store};
use std::path::PathBuf;
use types::own_image::IMAGE_TYPES;

/// For a root filesystem, which has no configuration of its own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Imports images from a file or folder
///
/// It can be an OCI layout (a folder or its archive), the output of `docker save`, or an archive of
/// a root filesystem. Archives can be compressed with gzip or zstd.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File or folder to import
    path: PathBuf,
    /// Name of the image, such as `team/app:v2`, instead of the names in the archive
    #[arg(long)]
    name: Option<String>,
}

pub(super) fn run(args: Args, store: &Store) -> Result<Exit, Error> {
    let act = format!("import {}", args.path.display());
    std::fs::metadata(&args.path).map_err(Error::reading(&act))?;
    let naming = match args.name {
        Some(name) => Naming::As(local::public_name(&name)?),
        None => Naming::Own { reserved: &IMAGE_TYPES },
    };
    let config = Config { env: [("PATH".to_owned(), PATH.to_owned())].into(), ..Config::default() };
    let spinner = progress::spinner("importing");
    let imported = store.import(&args.path, &naming, &config);
    spinner.finish_and_clear();
    let broken = |error| match error {
        Broken::Reserved(name) => local::own(&name.to_string()),
        error => failed(&act, &error),
    };
    for image in imported.map_err(broken)? {
        term::say(format!("{} {}", image.name, image.digest));
    }
    Ok(Exit::Success)
}
