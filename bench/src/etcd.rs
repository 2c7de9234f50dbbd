//! etcd as Debian ships it: one member, with its defaults.

use crate::running::{Running, Signal, free_address};
use anyhow::Context as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const START_MAX: Duration = Duration::from_secs(20);

pub(crate) struct Etcd {
    _process: Running,
    pub(crate) address: String,
    _folder: tempfile::TempDir,
}

impl Etcd {
    pub(crate) fn start(parent: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("etcd").tempdir_in(parent)?;
        let (address, peers) = (free_address()?, free_address()?);
        let process = Signal::Kill
            .command("etcd")
            .args(["--log-level=error", "--data-dir"])
            .arg(folder.path())
            .args(["--listen-client-urls", &format!("http://{address}")])
            .args(["--advertise-client-urls", &format!("http://{address}")])
            .args(["--listen-peer-urls", &format!("http://{peers}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peers}")])
            .args(["--initial-cluster", &format!("default=http://{peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd does not start: is Debian's `etcd-server` installed?")?;
        let mut process = Running::new(process, Signal::Kill);
        process.await_listening(&address, START_MAX).context("etcd")?;
        Ok(Self { _process: process, address, _folder: folder })
    }
}
