//! The real program as a process, to be measured and killed.

use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// Linux counts processor time for others in hundredths of a second, on every machine.
const TICK: Duration = Duration::from_millis(10);
/// Where the four times are in `/proc/PID/stat`, behind the name: its own and its children's, each
/// user and system.
const UTIME_FIELD: usize = 11;
const TIMES: usize = 4;

/// A running `holm up`. Killed when dropped, and when the test ends however it ends.
pub struct Holm {
    process: Child,
    /// Kept open: the server may write to it.
    _stdout: BufReader<ChildStdout>,
    /// `127.0.0.1` and the port.
    pub address: String,
    /// Shown at the first start only.
    pub key: Option<String>,
}

/// How to start one.
pub struct Start<'a> {
    pub program: PathBuf,
    pub data: &'a Path,
    /// PostgreSQL's address; SQLite when absent.
    pub database: Option<String>,
    pub settings: Vec<(&'a str, String)>,
}

impl Start<'_> {
    /// Starts the server. When this answers, the server has its port and will serve in a moment.
    pub fn run(&self) -> io::Result<Holm> {
        // `setpriv` becomes the program itself, which then ends with this thread.
        let mut command = Command::new("setpriv");
        command.args([OsStr::new("--pdeathsig=KILL"), OsStr::new("--"), self.program.as_os_str()]);
        command.args(["up", "--listen", "127.0.0.1:0", "--data"]).arg(self.data);
        command
            .env("HOLM_STORE__URL", self.database.as_deref().unwrap_or_default())
            .env("HOLM_LOG__LEVEL", "error");
        // Sandboxes need root and what is made of other packages; who wants them says so in the
        // settings.
        command.env("HOLM_SERVER__ROLES", "[\"api\"]");
        command.envs(self.settings.iter().map(|(name, value)| (*name, value)));
        command.current_dir(self.data).stdin(Stdio::null()).stdout(Stdio::piped());
        // A signal to the group of whoever starts it, such as Ctrl-C, is not for it: it is still
        // needed to tidy up.
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

/// Reads the address, and at the first start the key, from what the server tells its operator.
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

    /// Ends it at once, with no chance to put anything in order.
    pub fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Asks it to end and waits until it has: it then removes what it was given by the machine.
    pub fn end(&mut self) -> io::Result<()> {
        Command::new("kill").args(["-TERM", &self.id().to_string()]).status()?;
        self.process.wait().map(drop)
    }

    /// Processor time that it took until now, with that of its children that have ended.
    pub fn processor_time(&self) -> io::Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // The name of the program, in brackets, may hold spaces.
        let fields =
            stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
        let ticks: u64 = fields
            .skip(UTIME_FIELD)
            .take(TIMES)
            .filter_map(|field| field.parse::<u64>().ok())
            .sum();
        Ok(TICK * u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Memory that it holds now, in bytes.
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
