//! `holm usage`: shows what was used and what it cost.

mod ask;
mod csv;
mod export;
mod figures;
mod file;
mod models;
mod parquet;
mod row;
mod show;
mod verify;
pub(crate) mod window;

use crate::client::{Choice, Client};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::Format;
use ask::{RESOLUTIONS, Scope};
use window::Window;

/// Shows what was used and what it cost
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Option<Act>,
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    scope: Scope,
    /// How to group usage, by up to three of: workspace, resource_type, resource_name,
    /// resource_uuid, billing_dimension
    #[arg(long, value_name = "LIST", default_value = "resource_type")]
    by: String,
    /// Length of the chart's steps; by default chosen to suit the time window
    #[arg(long, value_parser = RESOLUTIONS)]
    resolution: Option<String>,
    /// How to show them
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Writes all usage in a time window to a file
    Export(export::Args),
    Models(models::Args),
    /// Computes all usage again from the facts in the database, and compares
    Verify(verify::Args),
}

pub(crate) async fn run(args: Args, choice: &Choice) -> Result<Exit, Error> {
    match args.act {
        None => show::run(args, Client::choose(choice)?).await,
        Some(Act::Export(args)) => export::run(args, Client::choose(choice)?).await,
        Some(Act::Models(args)) => models::run(args, Client::choose(choice)?).await,
        Some(Act::Verify(args)) => verify::run(args).await,
    }
}
