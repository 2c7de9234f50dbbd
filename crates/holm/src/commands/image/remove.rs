//! `holm image remove`: removes an image from this machine.

use super::local::{self, failed};
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use images::{Error as Broken, Store};

/// Removes an image, with all its names
///
/// Running sandboxes keep working. The server frees the disk space once nothing uses the layers any
/// more.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the image, such as `team/app:v2`; without a tag, `latest`
    name: String,
}

pub(super) fn run(args: &Args, store: &Store) -> Result<Exit, Error> {
    let name = local::name(&args.name)?;
    let broken = |error: Broken| failed(&format!("remove {name}"), &error);
    let Some(image) = store.resolve(&name).map_err(broken)? else {
        let message = format!("there is no image {name}; `holm image list` shows what there is");
        return Err(Error::Absent(message));
    };
    for name in store.remove_image(&image.digest).map_err(broken)? {
        term::say(format!("{name} removed"));
    }
    Ok(Exit::Success)
}
