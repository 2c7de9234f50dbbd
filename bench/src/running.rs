//! Programs that are measured beside ours: how they are started, waited for and ended.

use anyhow::ensure;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a program is ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Signal {
    Kill,
    /// For programs with workers, which end with them when they are asked to end, but not when they
    /// are killed.
    Term,
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "KILL",
            Self::Term => "TERM",
        }
    }

    /// Returns the command for a program that gets this signal if the measurement ends before it.
    pub(crate) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("setpriv");
        command.arg(format!("--pdeathsig={}", self.name())).arg("--").arg(program.as_ref());
        command.stdin(Stdio::null());
        command
    }
}

/// A program that ends when this is dropped.
pub(crate) struct Running {
    process: Child,
    signal: Signal,
}

impl Running {
    pub(crate) const fn new(process: Child, signal: Signal) -> Self {
        Self { process, signal }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) const fn output(&mut self) -> Option<ChildStdout> {
        self.process.stdout.take()
    }

    pub(crate) fn await_listening(&mut self, address: &str, limit: Duration) -> anyhow::Result<()> {
        self.await_that(limit, || TcpStream::connect(address).is_ok())
    }

    /// Waits until the program is ready. One that has ended never will be.
    pub(crate) fn await_that(
        &mut self,
        limit: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while !is_ready() {
            self.ensure_runs()?;
            ensure!(Instant::now() < deadline, "it does not answer");
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(crate) fn ensure_runs(&mut self) -> anyhow::Result<()> {
        let ended = self.process.try_wait()?;
        ensure!(ended.is_none(), "it ended with {ended:?}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // All of these fail only when it has ended already.
        let _ = match self.signal {
            Signal::Kill => self.process.kill(),
            Signal::Term => {
                let id = self.id().to_string();
                Command::new("kill").args(["-TERM", &id]).status().map(drop)
            }
        };
        let _ = self.process.wait();
    }
}

/// Chooses an address for a program that cannot report which port it took.
pub(crate) fn free_address() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Returns the configuration of an nginx as a plain proxy, tuned for that: a worker for each core,
/// kept connections on both sides, no log. `more` is what else is set for its requests.
pub(crate) fn nginx_conf(listen: &str, to: &str, more: &str) -> String {
    format!(
        r"daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  upstream backend {{
    server {to};
    keepalive 128;
    keepalive_requests 100000000;
  }}
  server {{
    listen {listen};
    location / {{
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
      {more}
    }}
  }}
}}
"
    )
}
