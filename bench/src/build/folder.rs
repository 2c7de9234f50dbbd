//! What is built: a base image and a folder, the same for all builders.

use crate::peers::finish;
use crate::program;
use anyhow::Context as _;
use images::{Config, Overlay, Settings, Store};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

pub(crate) const BASE: &str = "holm-bench/base";
pub(crate) const RUNS: usize = 20;
const BUSYBOX: &str = "/bin/busybox";
const FILES: usize = 200;

/// Returns a Dockerfile whose steps differ for every number, so that no cache has them.
pub(crate) fn dockerfile(number: usize) -> String {
    let run = |step| {
        format!(
            "RUN mkdir -p /srv/{step} && for i in $(seq 100); do echo {number} $i > /srv/{step}/$i; done\n"
        )
    };
    let runs: String = (0..RUNS).map(run).collect();
    format!("FROM {BASE}\n{runs}COPY . /app\nCMD [\"/bin/workload\"]\n")
}

/// Writes the folder as somebody would have it on a laptop.
pub(crate) fn write(to: &Path, number: usize) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    fs::write(to.join("Dockerfile"), dockerfile(number))?;
    for file in 0..FILES {
        fs::write(to.join(format!("file-{file}")), format!("{file}\n").repeat(100))?;
    }
    Ok(())
}

pub(crate) fn pack(folder: &Path, archive: &Path) -> anyhow::Result<()> {
    finish(Command::new("tar").arg("-C").arg(folder).arg("-cf").arg(archive).arg("."))
}

/// Writes the files of the base image.
pub(crate) fn write_base(root: &Path) -> anyhow::Result<()> {
    for folder in ["bin", "etc", "tmp", "root", "proc", "sys", "dev", "run"] {
        fs::create_dir_all(root.join(folder))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).context("the package busybox-static")?;
    fs::copy(program::build_workload()?, root.join("bin/workload"))?;
    for applet in ["sh", "mkdir", "seq", "echo"] {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    Ok(())
}

/// Makes an image store that holds only the base image.
pub(crate) fn make_image(place: &Path) -> anyhow::Result<()> {
    let (root, archive) = (place.join("base"), place.join("base.tar"));
    write_base(&root)?;
    pack(&root, &archive)?;
    let settings = Settings { overlay: Overlay::User, ..Settings::default() };
    let store = Store::open(&place.join("images"), settings)?;
    let config =
        Config { env: [("PATH".to_owned(), "/bin".to_owned())].into(), ..Config::default() };
    store.import_rootfs(fs::read(archive)?.as_slice(), &config, &BASE.parse()?)?;
    Ok(())
}
