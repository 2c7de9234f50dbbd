//! Shared test fixtures: a real PostgreSQL, a real S3 service, the real program as a process, what
//! a server leaves on the machine, and a small root file system.
//!
//! The shared PostgreSQL is Debian's. It listens on a socket in a folder of its own, and serves all
//! test processes that run at the same time, each of which holds a shared lock on the file `users`.
//! A keeper process in the background gets the exclusive lock once no test process is left, then
//! stops the server and removes the folder, however the tests ended.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test without what it needs can only fail"
)]

mod cluster;
mod holm;
pub mod machine;
mod root;
mod seaweedfs;
mod way;

pub use cluster::Cluster;
pub use holm::{Holm, Start};
pub use root::small_root;
pub use seaweedfs::SeaweedFs;
pub use way::{Cut, Way};

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the URL of a new, empty database. It is deleted with its server, soon after the last
/// test process ends.
pub fn postgres() -> String {
    postgres_with(&[])
}

/// The same, made with these options of `createdb`.
pub fn postgres_with(options: &[&str]) -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static DATABASES: AtomicU32 = AtomicU32::new(0);
    let server = SERVER.get_or_init(|| {
        Server::start().expect("PostgreSQL starts: is Debian's `postgresql` installed?")
    });
    let name = format!("test_{}_{}", std::process::id(), DATABASES.fetch_add(1, Ordering::Relaxed));
    let mut create = Command::new(server.programs.join("createdb"));
    run(create.arg("-h").arg(&server.folder).args(["-U", USER, &name]).args(options))
        .expect("the database is made");
    let folder = server.folder.to_string_lossy().replace('/', "%2F");
    format!("postgres:///{name}?host={folder}&user={USER}")
}

const USER: &str = "postgres";

struct Server {
    folder: PathBuf,
    programs: PathBuf,
    /// Lock that keeps the server from being stopped.
    _in_use: File,
}

impl Server {
    fn start() -> io::Result<Self> {
        let programs = programs()?;
        let user = fs::metadata("/proc/self")?.uid();
        let folder = std::env::temp_dir().join(format!("holm-testing-postgres-{user}"));
        let in_use = join(&folder)?;
        let starting = File::create(folder.join("starting"))?;
        starting.lock()?;
        let ready = run(Command::new(programs.join("pg_isready")).arg("-h").arg(&folder));
        if ready.is_err() {
            run(script(include_str!("init.sh"), &folder, &programs))?;
            run(script(include_str!("start.sh"), &folder, &programs))?;
            keep(&folder, &programs)?;
        }
        Ok(Self { folder, programs, _in_use: in_use })
    }
}

/// Takes a shared lock on the folder, which the keeper may be removing at the same time.
fn join(folder: &Path) -> io::Result<File> {
    let path = folder.join("users");
    loop {
        fs::create_dir_all(folder)?;
        let Ok(file) = File::options().create(true).append(true).open(&path) else {
            continue;
        };
        file.lock_shared()?;
        if fs::metadata(&path)
            .is_ok_and(|now| file.metadata().is_ok_and(|ours| now.ino() == ours.ino()))
        {
            return Ok(file);
        }
    }
}

/// Finds the server's programs, which Debian keeps out of the search path.
fn programs() -> io::Result<PathBuf> {
    let mut found: Vec<_> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()))
        .filter(|folder| {
            ["initdb", "pg_ctl", "createdb"].iter().all(|program| folder.join(program).exists())
        })
        .collect();
    found.sort();
    found
        .pop()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "`initdb` is nowhere to be found"))
}

fn keep(folder: &Path, programs: &Path) -> io::Result<()> {
    let mut keeper = Command::new("setsid");
    keeper.args(["sh", "-c", include_str!("keep.sh"), "keep"]).arg(folder).arg(programs);
    keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

fn script(text: &str, folder: &Path, programs: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-euc", text, "start"]).arg(folder).arg(programs);
    command
}

/// Runs a command to its end. Its output is kept out of that of the tests, unless it fails.
fn run(mut command: impl std::borrow::BorrowMut<Command>) -> io::Result<()> {
    let output = command.borrow_mut().stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_database_is_a_new_one() {
        assert_ne!(super::postgres(), super::postgres());
    }
}
