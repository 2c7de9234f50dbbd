//! `holm version`: prints the version.

use crate::error::Error;
use crate::exit::Exit;
use crate::term;

/// Prints the version
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(Args {}: &Args) -> Result<Exit, Error> {
    term::say(format!("holm {}", env!("CARGO_PKG_VERSION")));
    let versions = types::ApiVersion::ALL.map(types::ApiVersion::name).join(", ");
    term::say(format!("interface {versions}"));
    Ok(Exit::Success)
}
