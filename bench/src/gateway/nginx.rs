//! nginx as a plain proxy, tuned for that: a worker for each core, kept connections on both sides,
//! no log.

use super::network::Network;
use anyhow::{Context as _, ensure};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Ends when dropped.
pub(crate) struct Nginx {
    process: Child,
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
        fs::write(&file, configuration(&address, port))?;
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
        let mut nginx = Self { process, address, _folder: folder };
        ensure!(nginx.process.try_wait()?.is_none(), "nginx ended at once");
        Ok(nginx)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }
}

fn configuration(address: &str, port: u16) -> String {
    format!(
        r"daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  upstream workload {{
    server 127.0.0.1:{port};
    keepalive 128;
    keepalive_requests 100000000;
  }}
  server {{
    listen {address};
    location / {{
      proxy_pass http://workload;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
    }}
  }}
}}
"
    )
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it when it is asked to end, but not when it is killed.
        let _ = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        let _ = self.process.wait();
    }
}
