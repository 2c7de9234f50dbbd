//! The program that takes over: how it gets here, and which version it is.

use crate::http_client;
use crate::raw::Program;
use crate::reaper::{End, Reaper, Started};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use hyper::body::Body as HttpBody;
use parking_lot::Mutex;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

const PROGRAM_BYTES_MAX: u64 = 256 << 20;
const VERSION_WAIT: Duration = Duration::from_secs(10);

/// Why an upgrade failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("there is no address to fetch it from: give `baseUrl`, or set HOLM_GUEST_UPGRADE_URL")]
    NoAddress,
    #[error("failed to fetch it: {0}")]
    Fetch(#[from] http_client::Error),
    #[error("failed to fetch it: the answer has status {0}")]
    Status(StatusCode),
    #[error("failed to fetch it: {0}")]
    Body(#[from] hyper::Error),
    #[error("failed to fetch it: it did not come in time")]
    Late,
    #[error("the server did not hand over all of it")]
    NotHandedOver,
    #[error("what was fetched has more than {PROGRAM_BYTES_MAX} bytes")]
    TooLarge,
    #[error("failed to store or run what was fetched: {0}")]
    Store(#[from] io::Error),
    #[error("what was fetched is not a program that could take over: {0}")]
    Wrong(String),
}

/// A program in a folder of its own, which is removed unless the program takes over.
pub(super) struct Fetched {
    directory: tempfile::TempDir,
    pub(super) bytes: u64,
}

/// The upgrade that is waiting for a program from the machine, if any.
#[derive(Default)]
pub(crate) struct ProgramWanted(Mutex<Option<oneshot::Sender<Fetched>>>);

impl ProgramWanted {
    pub(super) fn begin(&self) -> oneshot::Receiver<Fetched> {
        let (sender, receiver) = oneshot::channel();
        *self.0.lock() = Some(sender);
        receiver
    }

    pub(super) fn end(&self) -> Option<oneshot::Sender<Fetched>> {
        self.0.lock().take()
    }
}

/// Downloads a program.
pub(super) async fn fetch(url: &str) -> Result<Fetched, Failure> {
    let request = http::Request::get(url)
        .body(Full::<Bytes>::default())
        .map_err(|_| http_client::Error::Address)?;
    let response = http_client::send(request).await?;
    if response.status() != StatusCode::OK {
        return Err(Failure::Status(response.status()));
    }
    Fetched::read(response.into_body()).await
}

impl Fetched {
    /// Stores a program in an executable file. Only this program's user can access the folder, so
    /// nobody can change what was checked.
    pub(super) async fn read<B>(mut body: B) -> Result<Self, Failure>
    where
        B: HttpBody<Data = Bytes, Error = hyper::Error> + Unpin,
    {
        let directory = tempfile::Builder::new().prefix("holm-guest-").tempdir()?;
        let mut fetched = Self { directory, bytes: 0 };
        let mut file = File::create_new(fetched.path())?;
        fetched.bytes = copy(&mut body, &mut file).await?;
        file.set_permissions(Permissions::from_mode(0o700))?;
        Ok(fetched)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("holm-guest")
    }
}

/// Writes a body to a file and returns its size.
async fn copy<B>(body: &mut B, file: &mut File) -> Result<u64, Failure>
where
    B: HttpBody<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        bytes += data.len() as u64;
        if bytes > PROGRAM_BYTES_MAX {
            return Err(Failure::TooLarge);
        }
        file.write_all(&data)?;
    }
    Ok(bytes)
}

/// Runs a program to ask for its version.
pub(super) async fn ask_version(reaper: &Reaper, path: &Path) -> Result<String, Failure> {
    let words = [path.as_os_str(), "--version".as_ref()];
    let program = Program::new(path, words, [], Path::new("."))?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (said, output) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let Started { pid, end } = reaper
        .spawn(&program, [null.as_fd(), output.as_fd(), null.as_fd()])
        .map_err(|error| Failure::Wrong(format!("it cannot be run: {error}")))?;
    drop(output);
    let Ok(ended) = timeout(VERSION_WAIT, end).await else {
        // It may have ended just now.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        return Err(Failure::Wrong("it does not tell its version".into()));
    };
    if ended != Ok(End::Exited(0)) {
        return Err(Failure::Wrong("it fails to tell its version".into()));
    }
    let mut line = [0; 256];
    // The program has ended, so its output is in the pipe; a child of it may still hold the pipe
    // open.
    rustix::io::ioctl_fionbio(&said, true).map_err(io::Error::from)?;
    let length = rustix::io::read(&said, &mut line).unwrap_or(0);
    Ok(String::from_utf8_lossy(&line[..length]).trim_end().to_owned())
}
