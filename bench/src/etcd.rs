//! etcd as Debian ships it: one member, with its defaults.

use anyhow::Context as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Ends when dropped.
pub(crate) struct Etcd {
    process: Child,
    pub(crate) address: String,
    _folder: tempfile::TempDir,
}

impl Etcd {
    pub(crate) fn start(parent: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("etcd").tempdir_in(parent)?;
        let (address, peers) = (free_address()?, free_address()?);
        let process = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "--", "etcd", "--log-level=error", "--data-dir"])
            .arg(folder.path())
            .args(["--listen-client-urls", &format!("http://{address}")])
            .args(["--advertise-client-urls", &format!("http://{address}")])
            .args(["--listen-peer-urls", &format!("http://{peers}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peers}")])
            .args(["--initial-cluster", &format!("default=http://{peers}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("etcd does not start: is Debian's `etcd-server` installed?")?;
        let etcd = Self { process, address, _folder: folder };
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(&etcd.address).is_err() {
            anyhow::ensure!(Instant::now() < deadline, "etcd does not answer");
            thread::sleep(LOOK_EVERY);
        }
        Ok(etcd)
    }
}

/// etcd cannot report which port it took, so one is chosen for it.
fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
