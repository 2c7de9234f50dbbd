//! The program that is measured.

use anyhow::{Context as _, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Builds Holm, unless `HOLM_PROGRAM` names one, to compare two builds.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    if let Some(program) = std::env::var_os("HOLM_PROGRAM") {
        return Ok(program.into());
    }
    cargo(&["build", "--release", "--locked", "--quiet", "--package", "holm"])
        .context("Holm could not be built")?;
    Ok(beside()?.join("holm"))
}

/// Builds Holm, and makes an image and the guest program, so that nothing is built while the
/// machine has to be quiet.
pub(crate) fn prepare(image: &str) -> anyhow::Result<()> {
    Parts::find(&build()?, image).map(drop)
}

/// Builds the server that is reached inside a sandbox. It must not depend on the image.
pub(crate) fn build_workload() -> anyhow::Result<PathBuf> {
    build_static("workload")
}

/// Builds the program that sends and answers requests over TLS, inside sandboxes and outside.
pub(crate) fn build_caller() -> anyhow::Result<PathBuf> {
    build_static("caller")
}

/// Builds the stand-in for providers of models.
pub(crate) fn build_standin() -> anyhow::Result<PathBuf> {
    cargo(&["build", "--release", "--locked", "--quiet", "--package", "standin"])
        .context("the program `standin` could not be built")?;
    Ok(beside()?.join("standin"))
}

fn build_static(package: &str) -> anyhow::Result<PathBuf> {
    let arguments = ["rustc", "--release", "--locked", "--quiet", "--package", package, "--"];
    cargo(&[arguments.as_slice(), &["-C", "target-feature=+crt-static"]].concat())
        .with_context(|| format!("the program `{package}` could not be built"))?;
    Ok(beside()?.join(package))
}

/// Returns where cargo puts programs: beside this one.
fn beside() -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.parent().context("no folder")?.to_owned())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo).current_dir(ROOT).args(arguments).status()?;
    ensure!(built.success(), "cargo ended with {built}");
    Ok(())
}

/// What a server needs to run sandboxes.
pub(crate) struct Parts {
    pub(crate) guest: PathBuf,
    pub(crate) images: PathBuf,
}

impl Parts {
    /// Returns those that the settings name, or else those that `tools/sandbox-parts` makes, which
    /// takes minutes the first time.
    pub(crate) fn find(program: &Path, image: &str) -> anyhow::Result<Self> {
        let named = |setting| std::env::var_os(setting).map(PathBuf::from);
        if let (Some(guest), Some(images)) =
            (named("HOLM_NODE__GUEST"), named("HOLM_IMAGES__FOLDER"))
        {
            return Ok(Self { guest, images });
        }
        let root = Path::new(ROOT).canonicalize()?;
        let made =
            Command::new(root.join("tools/sandbox-parts")).arg(program).arg(image).status()?;
        ensure!(made.success(), "what sandboxes need could not be made");
        Ok(Self { guest: root.join("target/holm-guest"), images: root.join("target/images") })
    }
}

/// Returns the guest program: the one that the settings name, or else what `tools/guest` makes.
pub(crate) fn find_guest() -> anyhow::Result<PathBuf> {
    if let Some(guest) = std::env::var_os("HOLM_NODE__GUEST") {
        return Ok(guest.into());
    }
    let root = Path::new(ROOT).canonicalize()?;
    let made = Command::new(root.join("tools/guest")).stdout(Stdio::null()).status()?;
    ensure!(made.success(), "the program inside of instances could not be built");
    Ok(root.join("target/holm-guest"))
}
