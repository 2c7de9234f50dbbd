//! The base of all images: a root filesystem that `mmdebstrap` makes from Debian packages.

use std::process::Command;

use crate::builder::{Builder, RecipeError, Tool, run};
use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::Config;
use crate::recipe::Recipe;
use crate::store::Store;

/// Nobody reads these in a sandbox, and they are a third of its size.
pub(crate) const LEFT_OUT: [&str; 4] =
    ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*"];
/// Roughly how many steps the tool reports.
pub(crate) const STEPS: usize = 15;
/// Fixes the time of all files, so that the same packages give the same image.
const SOURCE_DATE_EPOCH: &str = "1700000000";
/// Removes or resets files that the tool copies from this machine.
const OF_THIS_MACHINE: &str = r#"rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"; : >"$1/etc/resolv.conf"; echo holm >"$1/etc/hostname""#;

impl Store {
    pub(crate) fn bootstrap(
        &self,
        recipe: &Recipe,
        builder: &Builder,
        progress: &mut dyn FnMut(&str),
        lease: &Lease,
    ) -> Result<Digest, RecipeError> {
        let options = self.0.scratch();
        std::fs::write(&options, download_options()).map_err(Error::io("write", &options))?;
        let mut tool = tool(recipe, builder);
        tool.command.arg(format!("--aptopt={}", options.display()));
        tool.command.args([&builder.suite, "-"]).args(&builder.mirror);
        let config = recipe.config.over(&Config::default());
        let made = run(recipe, builder, tool, progress, |archive| {
            self.0.store_rootfs(archive, &config, lease)
        });
        disk::remove_file(&options)?;
        made
    }
}

fn tool(recipe: &Recipe, builder: &Builder) -> Tool {
    let mut tool = builder.tool(&builder.mmdebstrap, "mmdebstrap");
    let command = &mut tool.command;
    command.args(["--mode=auto", "--variant=minbase", "--format=tar"]);
    command.arg(format!("--include={}", recipe.packages.join(",")));
    command.args(LEFT_OUT.map(|path| format!("--dpkgopt=path-exclude={path}")));
    command.arg("--dpkgopt=path-include=/usr/share/locale/locale.alias");
    // A half-installed package has no value here or in a sandbox, so dpkg need not flush each file.
    command.arg("--dpkgopt=force-unsafe-io");
    command.arg(format!("--customize-hook={OF_THIS_MACHINE}"));
    command.env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH).env("LC_ALL", "C.UTF-8");
    tool
}

/// Returns the options that this machine's own apt needs to reach its server, such as a proxy or a
/// certificate, and one that leaves out recommended packages.
pub(crate) fn download_options() -> Vec<u8> {
    let dump =
        Command::new("apt-config").args(["dump", "--format", "%f \"%v\";%n", "Acquire"]).output();
    let mut options = dump.map(|output| output.stdout).unwrap_or_default();
    options.extend_from_slice(b"APT::Install-Recommends \"false\";\n");
    options
}
