//! `holm usage verify`
use crate::error::Error;
use crate::exit::Exit;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(super) async fn run(_: Args) -> Result<Exit, Error> {
    Ok(Exit::Success)
}
