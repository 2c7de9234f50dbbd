//! Builds the same folder with Debian's `buildah`, using folders of its own.

use super::folder::BASE;
use crate::peers::finish;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What happens to the steps of a build.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Layers {
    /// One layer for all steps: nothing is kept for the next build.
    One,
    /// One for each step, kept for the next build, as Holm does.
    Each,
}

/// Buildah with its own storage, which is removed when this is dropped.
pub(crate) struct Buildah(PathBuf);

impl Buildah {
    pub(crate) fn prepare(place: &Path) -> anyhow::Result<Self> {
        let buildah = Self(place.join("buildah"));
        fs::create_dir_all(&buildah.0)?;
        let (root, file) = (place.join("base"), place.join("Dockerfile.base"));
        fs::write(&file, "FROM scratch\nCOPY . /\nENV PATH=/bin\n")?;
        finish(buildah.command(BASE, &root, Layers::One).arg("-f").arg(file).arg(root))?;
        Ok(buildah)
    }

    pub(crate) fn build(&self, folder: &Path, layers: Layers) -> anyhow::Result<Duration> {
        let mut command = self.command("built", folder, layers);
        let begun = Instant::now();
        finish(command.arg(folder))?;
        Ok(begun.elapsed())
    }

    /// `chroot` is its fastest way to run a command, and isolates nothing.
    fn command(&self, name: &str, folder: &Path, layers: Layers) -> Command {
        let mut command = self.storage();
        command.args(["bud", "--isolation", "chroot", "--pull=never", "--network", "host"]);
        command.arg(match layers {
            Layers::One => "--layers=false",
            Layers::Each => "--layers=true",
        });
        command.args(["-t", name]).current_dir(folder);
        command
    }

    fn storage(&self) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.0.join("root")).arg("--runroot").arg(self.0.join("run"));
        command.args(["--storage-driver", "overlay"]);
        command
    }
}

impl Drop for Buildah {
    fn drop(&mut self) {
        // A failure only leaves a folder for temporary files behind.
        let _ = finish(self.storage().args(["rmi", "--all", "--force"]));
        let mounted = self.0.join("root/overlay");
        let _ = finish(Command::new("umount").arg("--lazy").arg(mounted));
    }
}
