//! Other ways to run many commands: programs that start one after the other in isolation, and a
//! queue on PostgreSQL.

use crate::peers::{Peers, finish, python_with};
use anyhow::{Context as _, ensure};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

const WORKERS: usize = 2;
/// As many runs as take some seconds.
const BWRAP_RUNS: usize = 1000;
const PODMAN_RUNS: usize = 40;
const TASK: [&str; 1] = ["/bin/true"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    /// Isolated, and nothing is recorded.
    Parallel,
    /// Isolated, without a network, and removed after it has ended.
    Podman,
}

impl Rival {
    /// Returns those that can run here, and why others cannot.
    pub(crate) fn able(peers: &Peers) -> (Vec<Self>, Vec<String>) {
        let (mut able, mut refusals) = (Vec::new(), Vec::new());
        for rival in [Self::Parallel, Self::Podman] {
            match rival.run(peers, WORKERS) {
                Ok(()) => able.push(rival),
                Err(error) => refusals.push(format!("{} cannot run here: {error:#}", rival.name())),
            }
        }
        (able, refusals)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel -j2 bwrap (not durable)",
            Self::Podman => "podman run, 2 at once (not durable)",
        }
    }

    /// Returns commands per second.
    pub(crate) fn rate(self, peers: &Peers) -> anyhow::Result<f64> {
        let runs = match self {
            Self::Parallel => BWRAP_RUNS,
            Self::Podman => PODMAN_RUNS,
        };
        let begun = Instant::now();
        self.run(peers, runs)?;
        Ok(runs as f64 / begun.elapsed().as_secs_f64())
    }

    fn run(self, peers: &Peers, runs: usize) -> anyhow::Result<()> {
        match self {
            Self::Parallel => {
                let bwrap = peers.bwrap(&TASK);
                let mut parallel = Command::new("parallel");
                parallel.args(["--will-cite", "--halt", "now,fail=1", "--max-args", "0"]);
                parallel
                    .arg(format!("--jobs={WORKERS}"))
                    .arg(bwrap.get_program())
                    .args(bwrap.get_args())
                    .arg(":::");
                finish(parallel.args((0..runs).map(|run| run.to_string())))
            }
            Self::Podman => thread::scope(|scope| {
                let worker =
                    || (0..runs / WORKERS).try_for_each(|_| finish(&mut peers.podman_run(&TASK)));
                let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
                workers
                    .into_iter()
                    .try_for_each(|worker| worker.join().ok().context("a worker gave up")?)
            }),
        }
    }
}

pub(crate) const VENV_NAME: &str = "pgqueuer 1.6.0 (not isolated)";
/// What is installed, with the versions that were measured.
const PACKAGES: [&str; 3] = ["pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"];
const SCRIPT: &str = include_str!("peer.py");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// `/bin/true`, not isolated.
    Program,
    Nothing,
}

/// A Python queue on PostgreSQL, in a virtual environment of its own.
pub(crate) struct Venv {
    python: PathBuf,
}

impl Venv {
    /// Installs what is missing.
    pub(crate) fn make() -> anyhow::Result<Self> {
        Ok(Self { python: python_with("pgqueuer", &PACKAGES)? })
    }

    /// Returns tasks per second, from the first that is stored to the last that is done.
    pub(crate) fn rate(&self, database: &str, work: Work) -> anyhow::Result<f64> {
        let (tasks, word) = match work {
            Work::Program => ("2000", "program"),
            Work::Nothing => ("20000", "nothing"),
        };
        let mut command = Command::new(&self.python);
        command.args([
            "-c",
            SCRIPT,
            &database.replacen("postgres:", "postgresql:", 1),
            tasks,
            word,
        ]);
        let ended = command.stdin(Stdio::null()).output()?;
        let wrong = String::from_utf8_lossy(&ended.stderr);
        ensure!(
            ended.status.success(),
            "{VENV_NAME}: {}",
            wrong.trim().lines().last().unwrap_or_default()
        );
        Ok(String::from_utf8(ended.stdout)?.trim().parse()?)
    }
}
