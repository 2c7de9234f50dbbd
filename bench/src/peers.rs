//! Alternative ways to run a command isolated from the machine, on the same root file system.

use crate::program::ROOT;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const EXEC_NAME: &str = "holm-bench";
const SERVE_NAME: &str = "holm-bench-serve";
/// What a new container runs, measured by its first byte.
const SAYING: [&str; 2] = ["/bin/echo", "hi"];

/// The image's root file system, which nobody else writes to; unmounted when dropped.
pub(crate) struct Root {
    place: TempDir,
}

impl Root {
    pub(crate) fn mount(folder: &Path, image: &str) -> anyhow::Result<Self> {
        let settings =
            images::Settings { overlay: images::Overlay::User, ..images::Settings::default() };
        let store = images::Store::open(folder, settings)?;
        let image = store
            .resolve(&image.parse()?)?
            .with_context(|| format!("there is no image {image}"))?;
        let place = tempfile::Builder::new().prefix("holm-bench-root-").tempdir()?;
        for part in ["upper", "work", "root"] {
            fs::create_dir(place.path().join(part))?;
        }
        // The uppermost layer comes first.
        let layers: Vec<_> =
            image.layers.iter().rev().map(|layer| layer.to_string_lossy()).collect();
        let at = place.path().display();
        let options = format!(
            "lowerdir={},upperdir={at}/upper,workdir={at}/work,userxattr",
            layers.join(":")
        );
        let root = Self { place };
        say(
            "mount",
            &["-t", "overlay", "-o", &options, "holm-bench", &root.path().to_string_lossy()],
        )?;
        Ok(root)
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("root")
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // Fails only when it was never mounted.
        let _ = say("umount", &["--lazy", &self.path().to_string_lossy()]);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    RuncRun,
    Bwrap,
    PodmanRun,
    PodmanExec,
}

impl Peer {
    pub(crate) const ALL: [Self; 4] =
        [Self::Bwrap, Self::RuncRun, Self::PodmanRun, Self::PodmanExec];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RuncRun => "runc run",
            Self::Bwrap => "bwrap",
            Self::PodmanRun => "podman run",
            Self::PodmanExec => "podman exec",
        }
    }

    /// Returns `n` for a peer that is measured in every `n`th round: slow ones less often.
    pub(crate) fn every(self) -> usize {
        match self {
            Self::Bwrap => 1,
            Self::RuncRun => 2,
            Self::PodmanRun | Self::PodmanExec => 8,
        }
    }
}

/// The peers, ready to run. What they created is removed when dropped.
pub(crate) struct Peers {
    root: Root,
    place: TempDir,
    runs: usize,
}

impl Peers {
    pub(crate) fn prepare(root: Root) -> anyhow::Result<Self> {
        Ok(Self {
            root,
            place: tempfile::Builder::new().prefix("holm-bench-peers-").tempdir()?,
            runs: 0,
        })
    }

    /// Creates what one of them needs before it is measured.
    pub(crate) fn prepare_one(&self, peer: Peer) -> anyhow::Result<()> {
        match peer {
            Peer::RuncRun => self.write_bundle(),
            Peer::PodmanExec => {
                let mut start = self.podman();
                start.args(["run", "--detach", "--name", EXEC_NAME]).args(self.podman_options());
                finish(start.args(["/bin/sleep", "infinity"]))
            }
            Peer::Bwrap | Peer::PodmanRun => Ok(()),
        }
    }

    /// Runs a command once: in a new container until the first byte of its output, inside a running
    /// one to its end.
    pub(crate) fn measure(&mut self, peer: Peer) -> anyhow::Result<Duration> {
        self.runs += 1;
        let mut command = match peer {
            Peer::RuncRun => self.runc(),
            Peer::Bwrap => self.bwrap(&SAYING),
            Peer::PodmanRun => self.podman_run(&SAYING),
            Peer::PodmanExec => {
                let mut command = self.podman();
                command.args(["exec", EXEC_NAME, "/bin/true"]);
                let begun = Instant::now();
                finish(&mut command)?;
                return Ok(begun.elapsed());
            }
        };
        first_byte(&mut command)
    }

    fn write_bundle(&self) -> anyhow::Result<()> {
        let bundle = self.place.path();
        finish(Command::new("runc").args(["spec", "--bundle"]).arg(bundle))?;
        let file = bundle.join("config.json");
        let mut spec: Value = serde_json::from_slice(&fs::read(&file)?)?;
        spec["root"] = json!({"path": self.root.path(), "readonly": false});
        spec["process"]["terminal"] = json!(false);
        spec["process"]["args"] = json!(SAYING);
        Ok(fs::write(file, spec.to_string())?)
    }

    fn runc(&self) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.place.path().join("runc"));
        command
            .args(["run", "--bundle"])
            .arg(self.place.path())
            .arg(format!("{EXEC_NAME}-{}", self.runs));
        command
    }

    pub(crate) fn bwrap(&self, act: &[&str]) -> Command {
        let mut command = Command::new("bwrap");
        command
            .args(["--unshare-all", "--die-with-parent", "--bind"])
            .arg(self.root.path())
            .arg("/");
        command.args(["--proc", "/proc", "--dev", "/dev"]).args(act);
        command
    }

    pub(crate) fn podman_run(&self, act: &[&str]) -> Command {
        let mut command = self.podman();
        command.args(["run", "--rm"]).args(self.podman_options()).args(act);
        command
    }

    /// Starts a container that serves in the network of this machine until [`Self::podman_stop`].
    pub(crate) fn podman_serve(&self, options: &[&str], act: &[&str]) -> Command {
        let mut command = self.podman();
        command.args(["run", "--rm", "--name", SERVE_NAME, "--network=host"]).args(options);
        command.args(self.podman_limits()).args(act);
        command
    }

    pub(crate) fn podman_stop(&self) -> Command {
        let mut command = self.podman();
        command.args(["rm", "--force", "--time", "0", SERVE_NAME]);
        command
    }

    /// Uses folders of its own, apart from containers of the machine's users.
    fn podman(&self) -> Command {
        let mut command = Command::new("podman");
        for (option, folder) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.place.path().join(folder));
        }
        command.args([
            "--runtime",
            "runc",
            "--cgroup-manager",
            "cgroupfs",
            "--events-backend",
            "none",
        ]);
        command
    }

    /// Without a network, it need not create one.
    fn podman_options(&self) -> Vec<String> {
        [vec!["--network=none".to_owned()], self.podman_limits()].concat()
    }

    /// The limits that a root without CAP_SYS_RESOURCE may set, and the root file system.
    fn podman_limits(&self) -> Vec<String> {
        let root = self.root.path();
        let root = root.to_string_lossy();
        ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096", "--rootfs", &root]
            .map(str::to_owned)
            .to_vec()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Fails only when it was never created.
        let _ = finish(self.podman().args(["rm", "--force", "--time", "0", EXEC_NAME]));
        let _ = finish(&mut self.podman_stop());
        let _ = say(
            "umount",
            &["--lazy", &self.place.path().join("storage/overlay").to_string_lossy()],
        );
    }
}

/// Returns the time until a command writes its first byte. Waits for its end without counting that.
fn first_byte(command: &mut Command) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut byte = [0];
    let output = child.stdout.as_mut().context("no output")?;
    let read = output.read(&mut byte)?;
    let time = begun.elapsed();
    let ended = child.wait_with_output()?;
    ensure!(read == 1 && ended.status.success(), "{}", said_wrong(&ended));
    Ok(time)
}

/// Returns a Python with packages from PyPI, in a virtual environment of its own that is created
/// once.
pub(crate) fn python_with(name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let root = Path::new(ROOT);
    let folder = root.join("target/bench").join(name);
    finish(Command::new(root.join("tools/python-packages")).arg(&folder).args(packages))?;
    Ok(folder.join("bin/python"))
}

/// Runs a command to its end. Any status but success is an error.
pub(crate) fn finish(command: &mut Command) -> anyhow::Result<()> {
    let ended = command.stdin(Stdio::null()).output()?;
    ensure!(ended.status.success(), "{}", said_wrong(&ended));
    Ok(())
}

fn said_wrong(ended: &std::process::Output) -> String {
    format!("{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim())
}

fn say(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    finish(Command::new(program).args(arguments)).with_context(|| program.to_owned())
}
