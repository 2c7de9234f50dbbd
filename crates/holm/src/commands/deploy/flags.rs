//! What may be said of a deployment on the command line.

use crate::duration::Span;
use crate::output::Format;
use std::path::PathBuf;

/// Deploys the project of a folder
///
/// Reads `blaxel.toml`, packs the folder, uploads it, shows the log of the build and prints the
/// address once the project serves. What served before serves on until then.
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
    /// Name; that of `blaxel.toml` or of the folder otherwise
    #[arg(short, long)]
    pub(super) name: Option<String>,
    /// agent, function, job, sandbox, application or volume-template; that of `blaxel.toml`
    /// otherwise, or sandbox
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(super) kind: Option<String>,
    /// Folder below, whose `blaxel.toml` and `Dockerfile` are meant
    #[arg(short, long, value_name = "FOLDER")]
    pub(super) directory: Option<String>,
    /// File of NAME=VALUE lines for the program; the server seals them
    #[arg(short, long, value_name = "FILE")]
    pub(super) env_file: Vec<PathBuf>,
    /// A secret for the program. `NAME` alone takes the value that it has here, which nobody else on
    /// this machine sees
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(super) secrets: Vec<String>,
    /// File of NAME=VALUE lines for the build alone
    #[arg(long, value_name = "FILE")]
    pub(super) build_env_file: Vec<PathBuf>,
    /// Credentials of registries: the file that `docker login` writes
    #[arg(long, value_name = "FILE")]
    pub(super) docker_config: Option<PathBuf>,
    /// Credentials of one registry, HOST=USER, with the password in HOLM_REGISTRY_PASSWORD;
    /// HOST=USER:PASSWORD can be seen by others on this machine
    #[arg(long, value_name = "HOST=USER")]
    pub(super) registry_cred: Vec<String>,
    /// Also deploy the projects that `blaxel.toml` names in folders below
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
    /// Build nothing: take the image that the object has
    #[arg(long)]
    pub(super) skip_build: bool,
    /// Allow what is not finished on the server's side
    #[arg(long)]
    pub(super) experimental: bool,
    /// Only print the request
    #[arg(long)]
    pub(super) dryrun: bool,
    /// How long to wait
    #[arg(long, default_value = "1h", value_name = "LENGTH")]
    pub(super) timeout: Span,
    /// Do not ask before it begins
    #[arg(short, long)]
    pub(super) yes: bool,
    /// How to show what was deployed; the address alone otherwise
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,
}
