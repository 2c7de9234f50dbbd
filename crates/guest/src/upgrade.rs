//! Upgrades this program while it runs.
//!
//! `POST /upgrade` answers at once. Then `{baseUrl}/{version}/holm-guest-{architecture}` is
//! downloaded, asked for its version, and started in place of this program, which hands over
//! everything that runs. Without `baseUrl`, the variable `HOLM_GUEST_UPGRADE_URL` is used, and
//! without either, the machine hands over the program that it has: see `types::guest`.
//! `GET /health` shows the progress; an upgrade that fails changes nothing else.

use crate::guest::Guest;
use crate::handover;
use crate::http::{Answer, Error, Request};
use crate::outside;
use crate::raw::Program;
use crate::reaper::{End, Started};
use bytes::Bytes;
use http::{HeaderName, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body as HttpBody;
use parking_lot::Mutex;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

const PROGRAM_BYTES_MAX: u64 = 256 << 20;
const DOWNLOAD_WAIT: Duration = Duration::from_secs(300);
/// The machine connects as soon as it has seen the answer, but it may be paused in between.
const MACHINE_WAIT: Duration = Duration::from_secs(60);
const VERSION_WAIT: Duration = Duration::from_secs(10);
const VERSION_CHARS_MAX: usize = 64;
const LATEST: &str = "latest";
/// Time for answers that are on their way, and for callers that are about to send another request.
const REPLACE_DELAY: Duration = Duration::from_millis(500);

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ask {
    version: Option<String>,
    base_url: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    #[default]
    Idle,
    Running,
    Completed,
    Failed,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    #[default]
    None,
    Starting,
    Download,
    Validate,
    Replace,
    Completed,
}

/// The last upgrade, as `GET /health` shows it.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upgrade {
    status: Status,
    step: Step,
    version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_attempt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    download_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes_downloaded: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    binary_path: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Upgrades {
    /// Number of upgrades that succeeded.
    pub(crate) count: u64,
    pub(crate) last: Upgrade,
}

impl Upgrades {
    /// Marks the last upgrade as successful, which the new program does.
    pub(crate) fn succeeded(self) -> Self {
        let last = Upgrade { status: Status::Completed, step: Step::Completed, ..self.last };
        Self { count: self.count + 1, last }
    }
}

/// Where the new program comes from.
enum Source {
    /// An address below which `{version}/holm-guest-{architecture}` is found.
    Address(String),
    Machine(oneshot::Receiver<Fetched>),
    Nowhere,
}

/// A program in a folder of its own, which is removed unless the program takes over.
struct Fetched {
    directory: tempfile::TempDir,
    bytes: u64,
}

/// The upgrade that is waiting for a program from the machine, if any.
#[derive(Default)]
pub(crate) struct ProgramWanted(Mutex<Option<oneshot::Sender<Fetched>>>);

impl ProgramWanted {
    fn begin(&self) -> oneshot::Receiver<Fetched> {
        let (sender, receiver) = oneshot::channel();
        *self.0.lock() = Some(sender);
        receiver
    }

    fn end(&self) -> Option<oneshot::Sender<Fetched>> {
        self.0.lock().take()
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("there is no address to fetch it from: give `baseUrl`, or set HOLM_GUEST_UPGRADE_URL")]
    NoAddress,
    #[error("failed to fetch it: {0}")]
    Fetch(#[from] outside::Error),
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

/// Returns the output of `--version`, which shows whether one program can take over from another.
pub(crate) fn version_line(version: &str) -> String {
    format!("holm-guest {version} state {}", handover::FORMAT)
}

pub(crate) async fn start(guest: &Arc<Guest>, mut request: Request) -> Result<Answer, Error> {
    let ask: Ask = request.json_or_default().await?;
    let version =
        ask.version.filter(|version| !version.is_empty()).unwrap_or_else(|| LATEST.into());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+');
    if version.len() > VERSION_CHARS_MAX || !version.chars().all(plain) || version.starts_with('.')
    {
        return Err(Error::BadRequest("`version` is not a version".into()));
    }
    let from_variable = || {
        guest
            .instance
            .variable("HOLM_GUEST_UPGRADE_URL")
            .map(|url| url.to_string_lossy().into_owned())
    };
    let base = ask.base_url.or_else(from_variable).filter(|url| !url.is_empty());
    if base.as_deref().is_some_and(|base| outside::parse(base).is_err()) {
        return Err(Error::BadRequest("`baseUrl` is not an address of HTTP or HTTPS".into()));
    }
    let answer = json!({"message": "Upgrade started", "version": version, "baseUrl": base.clone().unwrap_or_default()});
    let answer = Answer::json(&answer)?;
    begin(guest, &version)?;
    let source = match (base, &guest.instance.settings.secret) {
        (Some(base), _) => Source::Address(base),
        // Set up before the answer, because that makes the machine connect.
        (None, Some(_)) => Source::Machine(guest.program_wanted.begin()),
        (None, None) => Source::Nowhere,
    };
    let wants = matches!(source, Source::Machine(_));
    tokio::spawn(run(guest.clone(), version, source));
    let name = HeaderName::from_static(types::guest::WANTS_HEADER);
    Ok(if wants { answer.with(name, types::guest::WANTS_PROGRAM) } else { answer })
}

fn begin(guest: &Guest, version: &str) -> Result<(), Error> {
    let mut upgrades = guest.upgrades.lock();
    if upgrades.last.status == Status::Running {
        return Err(Error::Conflict(
            "an upgrade is under way: `GET /health` tells how it goes".into(),
        ));
    }
    upgrades.last = Upgrade {
        status: Status::Running,
        step: Step::Starting,
        version: version.to_owned(),
        last_attempt: Some(guest.instance.world.now().to_string()),
        ..Upgrade::default()
    };
    Ok(())
}

async fn run(guest: Arc<Guest>, version: String, source: Source) {
    let Err(failure) = upgrade(&guest, &version, source).await;
    note(&guest, |last| {
        last.status = Status::Failed;
        last.error = Some(failure.to_string());
    });
}

fn note(guest: &Guest, change: impl FnOnce(&mut Upgrade)) {
    change(&mut guest.upgrades.lock().last);
}

async fn upgrade(
    guest: &Guest,
    version: &str,
    source: Source,
) -> Result<std::convert::Infallible, Failure> {
    note(guest, |last| last.step = Step::Download);
    let fetched = match source {
        Source::Nowhere => return Err(Failure::NoAddress),
        Source::Address(base) => {
            let url = format!(
                "{}/{version}/holm-guest-{}",
                base.trim_end_matches('/'),
                std::env::consts::ARCH
            );
            note(guest, |last| last.download_url = Some(url.clone()));
            timeout(DOWNLOAD_WAIT, fetch(&url)).await.map_err(|_| Failure::Late)??
        }
        Source::Machine(program) => {
            let program = timeout(MACHINE_WAIT, program).await;
            program.map_err(|_| Failure::Late)?.map_err(|_| Failure::NotHandedOver)?
        }
    };
    note(guest, |last| {
        last.step = Step::Validate;
        last.bytes_downloaded = Some(fetched.bytes);
    });
    let path = fetched.path();
    let found = ask_version(guest, &path).await?;
    let wrong = |why: String| Err(Failure::Wrong(why));
    match found.strip_prefix("holm-guest ").and_then(|rest| rest.split_once(' ')) {
        Some((found_version, _)) if found != version_line(found_version) => {
            return wrong(format!("it says `{found}`, and takes over another kind of state"));
        }
        Some((found_version, _)) if version != LATEST && version != found_version => {
            return wrong(format!("it is version {found_version}"));
        }
        Some((found_version, _)) => note(guest, |last| last.version = found_version.to_owned()),
        None => return wrong(format!("it says `{found}`")),
    }
    note(guest, |last| {
        last.step = Step::Replace;
        last.binary_path = Some(path.clone());
    });
    sleep(REPLACE_DELAY).await;
    let upgrades = guest.upgrades.lock().clone();
    Err(handover::replace(guest, &path, upgrades).await.into())
}

/// Downloads a program.
async fn fetch(url: &str) -> Result<Fetched, Failure> {
    let request = http::Request::get(url)
        .body(Full::<Bytes>::default())
        .map_err(|_| outside::Error::Address)?;
    let response = outside::send(request).await?;
    if response.status() != StatusCode::OK {
        return Err(Failure::Status(response.status()));
    }
    Fetched::read(response.into_body()).await
}

/// Accepts the program that an upgrade is waiting for, but only from the machine.
pub(crate) async fn take_program(guest: &Guest, request: Request) -> Result<Answer, Error> {
    guest.require_machine(&request)?;
    let wanted = guest.program_wanted.end();
    let wanted = wanted.ok_or_else(|| Error::Conflict("no upgrade waits for a program".into()))?;
    let fetched = Fetched::read(request.into_body())
        .await
        .map_err(|failure| Error::BadRequest(failure.to_string()))?;
    // If the upgrade has timed out, the program is discarded.
    let _ = wanted.send(fetched);
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

impl Fetched {
    /// Stores a program in an executable file. Only this program's user can access the folder, so
    /// nobody can change what was checked.
    async fn read<B>(mut body: B) -> Result<Self, Failure>
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

    fn path(&self) -> PathBuf {
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
async fn ask_version(guest: &Guest, path: &Path) -> Result<String, Failure> {
    let words = [path.as_os_str(), "--version".as_ref()];
    let program = Program::new(path, words, [], Path::new("."))?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (said, output) = pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from)?;
    let Started { pid, end } = guest
        .instance
        .reaper
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
