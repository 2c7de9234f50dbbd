//! nginx as a plain proxy, tuned for that: a worker for each core, kept connections on both sides,
//! no log.

use super::network::Network;
use crate::running::{Running, Signal, nginx_conf};
use anyhow::Context as _;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub(crate) struct Nginx {
    process: Running,
    pub(crate) address: String,
    _folder: TempDir,
}

impl Nginx {
    /// Starts an nginx that listens on this machine and connects inside the network.
    pub(crate) fn start(network: &Network, port: u16) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("holm-bench-nginx-").tempdir()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // nginx expects that of a socket that it takes over. A worker that came too late to accept a
        // connection would otherwise wait for the next one, and leave its others unanswered.
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        fcntl_setfd(&listener, FdFlags::empty())?;
        let file = folder.path().join("nginx.conf");
        fs::write(&file, nginx_conf(&address, &format!("127.0.0.1:{port}"), ""))?;
        // nginx takes over a socket that is named in NGINX if the configuration listens on its
        // address.
        let process = Command::new("nsenter")
            .arg(format!("--net={}", network.file))
            .args(["setpriv", "--pdeathsig=TERM", "--", "nginx", "-p"])
            .arg(folder.path())
            .arg("-c")
            .arg(&file)
            .env("NGINX", format!("{};", listener.as_raw_fd()))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("nginx does not start: is Debian's `nginx-light` installed?")?;
        let mut process = Running::new(process, Signal::Term);
        process.ensure_runs().context("nginx")?;
        Ok(Self { process, address, _folder: folder })
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}
