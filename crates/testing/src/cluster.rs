//! A PostgreSQL server of one's own, to be measured, killed and restarted.

use crate::{programs, run, script};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// After a crash, a start waits for processes of the previous run and replays the log.
const START_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server with the durability that users have: it writes through to disk. Dropping it kills and
/// removes it.
pub struct Cluster {
    folder: tempfile::TempDir,
    programs: PathBuf,
    process: Option<Child>,
}

impl Cluster {
    /// Makes a cluster below `parent` and starts its server.
    pub fn start(parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("postgres").tempdir_in(parent)?;
        let mut cluster = Self { folder, programs: programs()?, process: None };
        run(script(include_str!("init.sh"), cluster.folder.path(), &cluster.programs))?;
        cluster.restart()?;
        run(Command::new(cluster.programs.join("createdb"))
            .arg("-h")
            .arg(cluster.socket())
            .args(["-U", USER, NAME]))?;
        Ok(cluster)
    }

    /// Makes a second server below `parent` that replicates this one.
    pub fn standby(&self, parent: &Path) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("standby").tempdir_in(parent)?;
        let mut standby = Self { folder, programs: self.programs.clone(), process: None };
        let mut copy = script(include_str!("standby.sh"), standby.folder.path(), &self.programs);
        run(copy.arg(self.socket()))?;
        standby.restart()?;
        Ok(standby)
    }

    /// Waits until a standby has everything written so far.
    pub fn wait_for_standby(&self) -> io::Result<()> {
        let written = self.ask("SELECT pg_current_wal_insert_lsn()")?;
        let there =
            format!("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '{written}'");
        let deadline = Instant::now() + START_MAX;
        while self.ask(&there)? == "0" {
            within(deadline)?;
        }
        Ok(())
    }

    /// Promotes a standby to take the place of its primary.
    pub fn promote(&self) -> io::Result<()> {
        match self.ask("SELECT pg_promote(true)")?.as_str() {
            "t" => Ok(()),
            other => Err(io::Error::other(format!("the standby was not promoted: {other}"))),
        }
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        format!("postgres:///{NAME}?host={}&user={USER}", encoded(self.socket()))
    }

    /// Returns the URL of whichever of the two servers accepts writes.
    pub fn url_or(&self, other: &Self) -> String {
        let hosts = format!("{},{}", encoded(self.socket()), encoded(other.socket()));
        format!("postgres://{USER}@{hosts}/{NAME}?target_session_attrs=read-write")
    }

    /// Returns the version that the server reports.
    pub fn version(&self) -> io::Result<String> {
        let output = Command::new(self.programs.join("postgres")).arg("--version").output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns the transactions per second of PostgreSQL's own benchmark, in the mode without a
    /// lock that all clients want (`-N`), in a separate database.
    pub fn pgbench(&self, clients: usize, seconds: u64) -> io::Result<f64> {
        const DATABASE: &str = "pgbench";
        // Fails if it already exists.
        if run(self.tool("createdb").arg(DATABASE)).is_ok() {
            run(self.tool("pgbench").args(["-i", "-q", "-s", "10", DATABASE]))?;
        }
        let mut load = self.tool("pgbench");
        load.args(["-N", "-j2", "-c", &clients.to_string(), "-T", &seconds.to_string(), DATABASE]);
        let output = load.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
        rate.and_then(|rest| rest.split(' ').next()?.parse().ok())
            .ok_or_else(|| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// Returns a command for one of PostgreSQL's programs, connected to this server.
    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.arg("-h").arg(self.socket()).args(["-U", USER]);
        command
    }

    /// Kills the server as a crash would, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only if it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Starts the server and waits until it answers.
    pub fn restart(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            self.kill();
            let process = self.process.insert(self.spawn()?);
            while process.try_wait()?.is_none() {
                if run(Command::new(self.programs.join("pg_isready"))
                    .arg("-h")
                    .arg(self.folder.path()))
                .is_ok()
                {
                    return Ok(());
                }
                within(deadline)?;
            }
            // It refuses to start while a process of the previous run is still ending.
            within(deadline)?;
        }
    }

    /// Waits until the server has finished work for killed clients. Until then it may still commit
    /// for them.
    pub fn wait_for_orphans(&self) {
        let left = format!(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{NAME}' AND pid <> pg_backend_pid()"
        );
        let deadline = Instant::now() + START_MAX;
        while self.ask(&left).is_ok_and(|count| count != "0") && within(deadline).is_ok() {}
    }

    fn ask(&self, sql: &str) -> io::Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.arg("-h").arg(self.socket()).args(["-U", USER, "-d", NAME, "-Atc", sql]);
        let output = psql.output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = script(include_str!("serve.sh"), self.folder.path(), &self.programs);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }

    fn socket(&self) -> &Path {
        self.folder.path()
    }
}

fn encoded(folder: &Path) -> String {
    folder.to_string_lossy().replace('/', "%2F")
}

fn within(deadline: Instant) -> io::Result<()> {
    if Instant::now() > deadline {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "PostgreSQL does not start"));
    }
    thread::sleep(LOOK_EVERY);
    Ok(())
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Stops it at once, but unlike a kill gives its shared memory back to the kernel.
            let quit = Command::new("sh")
                .args(["-c", "kill -QUIT \"$1\"", "quit", &process.id().to_string()])
                .status();
            if quit.is_ok_and(|quit| quit.success()) {
                let _ = process.wait();
                self.process = None;
            }
        }
        self.kill();
        // After a kill, its other processes notice one by one that their parent is gone, and write
        // files until then.
        while fs::remove_dir_all(self.folder.path())
            .is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        {
            thread::sleep(LOOK_EVERY);
        }
    }
}

const USER: &str = "postgres";
const NAME: &str = "holm";
