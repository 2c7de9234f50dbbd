//! The program that is measured.

use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Builds Holm, unless `HOLM_PROGRAM` names one: to compare two builds.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    if let Some(program) = std::env::var_os("HOLM_PROGRAM") {
        return Ok(program.into());
    }
    cargo(&["build", "--release", "--locked", "--quiet", "--package", "holm"]).context("Holm could not be built")?;
    Ok(beside()?.join("holm"))
}

/// Builds the server that runs inside of a sandbox to be reached. It must need nothing of the image.
pub(crate) fn build_workload() -> anyhow::Result<PathBuf> {
    let arguments = ["rustc", "--release", "--locked", "--quiet", "--package", "workload", "--"];
    cargo(&[arguments.as_slice(), &["-C", "target-feature=+crt-static"]].concat())
        .context("the workload could not be built")?;
    Ok(beside()?.join("workload"))
}

/// Where cargo puts programs: this one stands there.
fn beside() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("no folder")?.to_owned())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo).current_dir(ROOT).args(arguments).status()?;
    ensure!(built.success(), "cargo ended with {built}");
    Ok(())
}

/// A file or folder that the sandbox engine needs: the setting's, else the one that `tools/` makes.
pub(crate) fn part(setting: &str, usual: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os(setting).map_or_else(|| Path::new(ROOT).join(usual), PathBuf::from);
    path.canonicalize().with_context(|| format!("{} is missing: set {setting}, or run `make bench`", path.display()))
}
