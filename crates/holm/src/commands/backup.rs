use crate::error::Error;
use crate::exit::Exit;
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) async fn run(Args {}: Args) -> Result<Exit, Error> {
    Ok(Exit::Failed)
}
