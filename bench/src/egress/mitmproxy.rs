//! mitmproxy from PyPI, which opens TLS and adds a header, as our proxy does.

use super::internet::{Internet, NAME};
use super::{SECONDS, Seen};
use crate::peers::python_with;
use crate::program;
use anyhow::{Context as _, ensure};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ends when dropped.
pub(crate) struct Mitmproxy {
    process: Child,
    address: SocketAddr,
    authority: PathBuf,
}

impl Mitmproxy {
    pub(crate) fn start(place: &Path, internet: &Internet) -> anyhow::Result<Self> {
        let python = python_with("mitmproxy-venv", &["mitmproxy"])
            .context("mitmproxy cannot be had from PyPI")?;
        let folder = place.join("mitmproxy");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let option = |name: &str, value: String| ["--set".to_owned(), format!("{name}={value}")];
        let process = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "--"])
            .arg(python.with_file_name("mitmdump"))
            .args(["--quiet", "--listen-host", "127.0.0.1", "--listen-port", &port.to_string()])
            .args(option("confdir", folder.display().to_string()))
            .args(option(
                "ssl_verify_upstream_trusted_ca",
                internet.authority().display().to_string(),
            ))
            .args(option("upstream_cert", "false".to_owned()))
            .args(option("connection_strategy", "lazy".to_owned()))
            .args(["--modify-headers", "/~q/authorization/Bearer sk-bench"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let authority = folder.join("mitmproxy-ca-cert.pem");
        let mut peer = Self { process, address, authority };
        peer.await_start()?;
        Ok(peer)
    }

    fn await_start(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect(self.address).is_err() || !self.authority.exists() {
            let ended = self.process.try_wait()?;
            ensure!(ended.is_none(), "mitmproxy ended with {ended:?}");
            ensure!(Instant::now() < deadline, "mitmproxy does not listen");
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Returns the time that it adds to a request, over one connection on this machine.
    pub(crate) fn added_ms(&mut self, internet: &Internet) -> anyhow::Result<f64> {
        let authority = internet.authority();
        let direct = self.load(&authority, None)?;
        let proxied = self.load(&self.authority.clone(), Some(self.address.to_string()))?;
        Ok(proxied.p50_ms - direct.p50_ms)
    }

    fn load(&self, authority: &Path, proxy: Option<String>) -> anyhow::Result<Seen> {
        // It connects to the name in the TLS handshake, which only our name server knows, unless it
        // is given the address.
        let output = Command::new(program::build_caller()?)
            .args(["load", NAME, &Internet::address()])
            .arg(authority)
            .args(["1", SECONDS])
            .args(proxy)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the load failed: {said}");
        Seen::of(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Drop for Mitmproxy {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
