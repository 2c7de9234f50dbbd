//! Automation of the project, with one subcommand for each task.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it is a command of the project's own"
)]

mod policy;
mod unused;

use anyhow::{Context, Result};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "cargo xtask openapi    writes docs/openapi.json from the code
cargo xtask policy     holds the dependencies against deny.toml
cargo xtask unused     finds dependencies that no source names";

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let done = match verb.as_str() {
        "openapi" => openapi(),
        "policy" => policy::check(&root()),
        "unused" => unused::check(&root()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root folder of the project.
fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn openapi() -> Result<()> {
    let file = root().join("docs/openapi.json");
    let text = serde_json::to_string_pretty(&api::document())?;
    std::fs::write(&file, text + "\n")
        .with_context(|| format!("cannot write {}", file.display()))?;
    println!("docs/openapi.json is written");
    Ok(())
}
