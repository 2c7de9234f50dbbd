//! `holm config`: the settings of the server.

use crate::config::{self, Config};
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use std::path::PathBuf;

/// Shows or checks the settings of the server
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Prints the commented file with every setting and its default
    Example,
    /// Checks whether the settings are valid, and points out likely mistakes
    Check,
}

const FILE_VARIABLE: &str = "HOLM_CONFIG";

/// Where the settings and the data of the server are.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Place {
    /// Settings file; by default $HOLM_CONFIG, or ./holm.toml or /etc/holm/holm.toml, if one exists
    #[arg(short, long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Data folder, instead of that of the settings (`data.folder`)
    #[arg(long, global = true, value_name = "FOLDER")]
    data: Option<String>,
}

impl Place {
    /// Reads the settings. `flags` are those that a command adds.
    pub(crate) fn load(&self, flags: &[(&str, String)]) -> Result<Config, Error> {
        let folder = self.data.iter().map(|folder| ("data.folder", folder.clone()));
        let flags: Vec<_> = flags.iter().cloned().chain(folder).collect();
        let environment =
            std::env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        Ok(config::load(self.file().as_deref(), environment, &flags)?)
    }

    /// Returns the file that was named. A variable that is set to nothing names none, while an empty
    /// flag is refused.
    fn file(&self) -> Option<PathBuf> {
        let variable = || std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty());
        self.config.clone().or_else(|| variable().map(PathBuf::from))
    }
}

pub(crate) fn run(args: &Args) -> Result<Exit, Error> {
    match &args.act {
        Act::Example => term::say_part(config::EXAMPLE),
        Act::Check => {
            let config = args.place.load(&[])?;
            for warning in &config.warnings {
                term::note(format!("{} {warning}", term::styled_note(Style::Warning, "warning:")));
            }
            term::say(term::styled(Style::Good, "the settings can be used"));
        }
    }
    Ok(Exit::Success)
}
