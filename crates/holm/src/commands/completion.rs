//! `holm completion`: scripts for command completion in a shell.

use crate::cli::Cli;
use crate::error::Error;
use crate::exit::Exit;
use crate::term;
use clap::CommandFactory;

/// Prints a script for command completion in a shell
///
/// bash: `source <(holm completion bash)`. zsh: write it to a file `_holm` in a folder of $fpath.
/// fish: `holm completion fish > ~/.config/fish/completions/holm.fish`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to complete in
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Error> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "holm", &mut script);
    term::say_part(String::from_utf8_lossy(&script));
    Ok(Exit::Success)
}
