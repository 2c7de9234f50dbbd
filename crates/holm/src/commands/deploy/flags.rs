//! Command-line options of `holm deploy`.

use super::supplies::Supplies;
use crate::duration::Span;
use crate::output::Format;
use std::path::PathBuf;

/// Deploys the project of a folder
///
/// Reads `blaxel.toml`, packs and uploads the folder, shows the log of the build, and prints the
/// address once the project serves. The previous version keeps serving until then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holm deploy
  holm deploy ./helper --name helper --type agent
  holm deploy --env-file .env --secrets TOKEN --timeout 30m
  holm deploy --skip-build            # new settings, same image
  holm deploy --dryrun                # prints the request and what would be packed")]
pub(crate) struct Args {
    /// Folder of the project
    #[arg(default_value = ".")]
    pub(super) folder: PathBuf,
    /// Name; by default that in `blaxel.toml`, or that of the folder
    #[arg(short, long)]
    pub(super) name: Option<String>,
    /// agent, function, job, sandbox, application or volume-template; by default that in
    /// `blaxel.toml`, or sandbox
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(super) kind: Option<String>,
    /// Folder inside the project whose `blaxel.toml` and `Dockerfile` to use
    #[arg(short, long, value_name = "FOLDER")]
    pub(super) directory: Option<String>,
    /// File of NAME=VALUE lines for the program; the server seals them
    #[arg(short, long, value_name = "FILE")]
    pub(super) env_file: Vec<PathBuf>,
    /// A secret for the program. `NAME` alone takes the value from your environment, where no other
    /// user of this machine can see it
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(super) secrets: Vec<String>,
    #[command(flatten)]
    pub(super) supplies: Supplies,
    /// Also deploy the projects in subfolders that `blaxel.toml` names
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
    /// Build nothing; keep the image that the object has
    #[arg(long)]
    pub(super) skip_build: bool,
    /// Allow features that the server marks as experimental
    #[arg(long)]
    pub(super) experimental: bool,
    /// Only print the request
    #[arg(long)]
    pub(super) dryrun: bool,
    /// How long to wait
    #[arg(long, default_value = "1h", value_name = "LENGTH")]
    pub(super) timeout: Span,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(super) yes: bool,
    /// How to show what was deployed; by default only its address
    #[arg(short, long, value_enum, default_value_t, hide_default_value = true)]
    pub(super) output: Format,
}
