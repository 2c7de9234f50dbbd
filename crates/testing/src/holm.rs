//! The real program as a process, to be measured and killed.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Linux reports processor time in hundredths of a second, on every machine.
const TICK: Duration = Duration::from_millis(10);
/// Position of the four times in `/proc/PID/stat`, counted after the name: user and system time of
/// the process, then of its children.
const UTIME_FIELD: usize = 11;
const TIMES: usize = 4;

/// A running `holm up`. It is killed on drop, and when the test ends in any other way.
pub struct Holm {
    process: Child,
    /// Kept open, since the server may write to it.
    _stdout: BufReader<ChildStdout>,
    /// `127.0.0.1` and the port.
    pub address: String,
    /// The API key, which only the first start prints.
    pub key: Option<String>,
}

/// Parameters for starting a server.
pub struct Start<'a> {
    pub program: PathBuf,
    pub data: &'a Path,
    /// URL of PostgreSQL; SQLite is used if absent.
    pub database: Option<String>,
    pub settings: Vec<(&'a str, String)>,
}

impl Start<'_> {
    /// Starts the server. It has its port when this returns, and serves a moment later.
    pub fn run(&self) -> io::Result<Holm> {
        // `setpriv` execs the program, which is then killed when this thread ends.
        let mut command = Command::new("setpriv");
        command.args([OsStr::new("--pdeathsig=KILL"), OsStr::new("--"), self.program.as_os_str()]);
        command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(self.data);
        command
            .env("HOLM_STORE__URL", self.database.as_deref().unwrap_or_default())
            .env("HOLM_LOG__LEVEL", "error");
        // Sandboxes need root and files built by other packages, so only tests that ask for them in
        // the settings get them.
        command.env("HOLM_SERVER__ROLES", "[\"api\"]");
        command.envs(self.settings.iter().map(|(name, value)| (*name, value)));
        command.current_dir(self.data).stdin(Stdio::null()).stdout(Stdio::piped());
        // In a group of its own, so that Ctrl-C for the test does not reach it: it is still needed
        // to tidy up.
        command.process_group(0);
        let mut process = command.spawn()?;
        let stdout =
            process.stdout.take().ok_or_else(|| io::Error::other("the server has no output"))?;
        let mut stdout = BufReader::new(stdout);
        match greeting(&mut stdout) {
            Ok((address, key)) => Ok(Holm { process, _stdout: stdout, address, key }),
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(error)
            }
        }
    }
}

/// Reads the address, and at the first start the key, from the server's greeting.
fn greeting(output: &mut impl io::BufRead) -> io::Result<(String, Option<String>)> {
    let ended = || io::Error::other("the server ended before it was ready");
    let mut lines = output.lines();
    let first = lines.next().ok_or_else(ended)??;
    let address = first
        .split("://")
        .nth(1)
        .and_then(|rest| rest.split([' ', '/']).next())
        .ok_or_else(ended)?;
    if first.contains("(sign in:") {
        return Ok((address.to_owned(), None));
    }
    for line in lines {
        if let Some(key) = line?.trim().strip_prefix("API key") {
            return Ok((address.to_owned(), Some(key.trim().to_owned())));
        }
    }
    Err(ended())
}

impl Holm {
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server at once, without a chance to tidy up.
    pub fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Asks the server to stop and waits until it has, so that it removes what it set up on the
    /// machine.
    pub fn end(&mut self) -> io::Result<()> {
        Command::new("kill").args(["-TERM", &self.id().to_string()]).status()?;
        self.process.wait().map(drop)
    }

    /// Returns the processor time used so far, including that of finished children.
    pub fn processor_time(&self) -> io::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // The name of the program is in parentheses and may contain spaces.
        let fields =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        let ticks: u64 = fields
            .skip(UTIME_FIELD)
            .take(TIMES)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Returns the resident memory in bytes.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        kib.map(|kib| kib * 1024)
            .ok_or_else(|| io::Error::other("the kernel does not tell its memory"))
    }
}

impl Drop for Holm {
    fn drop(&mut self) {
        self.kill();
    }
}
