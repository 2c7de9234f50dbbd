//! mitmproxy from PyPI, which opens TLS and adds a header, as our proxy does.

use super::internet::{Internet, NAME};
use super::{SECONDS, Seen};
use crate::peers::python_with;
use crate::program;
use crate::running::{Running, Signal, free_address};
use anyhow::{Context as _, ensure};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const START_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Mitmproxy {
    _process: Running,
    address: String,
    authority: PathBuf,
}

impl Mitmproxy {
    pub(crate) fn start(place: &Path, internet: &Internet) -> anyhow::Result<Self> {
        let python = python_with("mitmproxy-venv", &["mitmproxy"])
            .context("mitmproxy cannot be had from PyPI")?;
        let folder = place.join("mitmproxy");
        let address = free_address()?;
        let (host, port) = address.split_once(':').context("no port")?;
        let option = |name: &str, value: String| ["--set".to_owned(), format!("{name}={value}")];
        let process = Signal::Kill
            .command(python.with_file_name("mitmdump"))
            .args(["--quiet", "--listen-host", host, "--listen-port", port])
            .args(option("confdir", folder.display().to_string()))
            .args(option(
                "ssl_verify_upstream_trusted_ca",
                internet.authority().display().to_string(),
            ))
            .args(option("upstream_cert", "false".to_owned()))
            .args(option("connection_strategy", "lazy".to_owned()))
            .args(["--modify-headers", "/~q/authorization/Bearer sk-bench"])
            .stdout(Stdio::null())
            .spawn()?;
        let authority = folder.join("mitmproxy-ca-cert.pem");
        let mut process = Running::new(process, Signal::Kill);
        let is_ready = || TcpStream::connect(&address).is_ok() && authority.exists();
        process.await_that(START_MAX, is_ready).context("mitmproxy")?;
        Ok(Self { _process: process, address, authority })
    }

    /// Returns the time that it adds to a request, over one connection on this machine.
    pub(crate) fn added_ms(&mut self, internet: &Internet) -> anyhow::Result<f64> {
        let authority = internet.authority();
        let direct = self.load(&authority, None)?;
        let proxied = self.load(&self.authority.clone(), Some(self.address.clone()))?;
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
