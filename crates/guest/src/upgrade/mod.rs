//! Upgrades this program while it runs.
//!
//! `POST /upgrade` answers at once. Then `{baseUrl}/{version}/holm-guest-{architecture}` is
//! downloaded, asked for its version, and started in place of this program, which hands over
//! everything that runs. Without `baseUrl`, the variable `HOLM_GUEST_UPGRADE_URL` is used, and
//! without either, the machine hands over the program that it has: see `types::guest`.
//! `GET /health` shows the progress; an upgrade that fails changes nothing else.

mod new_program;
mod progress;

pub(crate) use new_program::ProgramWanted;
pub(crate) use progress::Upgrades;

use crate::guest::Guest;
use crate::handover;
use crate::http::{Answer, Error, Request};
use crate::http_client;
use http::{HeaderName, StatusCode};
use new_program::{Failure, Fetched, ask_version, fetch};
use progress::{Status, Step, Upgrade};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

const DOWNLOAD_WAIT: Duration = Duration::from_secs(300);
/// The machine connects as soon as it has seen the answer, but it may be paused in between.
const MACHINE_WAIT: Duration = Duration::from_secs(60);
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

/// Where the new program comes from.
enum Source {
    /// An address below which `{version}/holm-guest-{architecture}` is found.
    Address(String),
    Machine(oneshot::Receiver<Fetched>),
    Nowhere,
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
        let url = guest.instance.variable("HOLM_GUEST_UPGRADE_URL")?;
        Some(url.to_string_lossy().into_owned())
    };
    let base = ask.base_url.or_else(from_variable).filter(|url| !url.is_empty());
    if base.as_deref().is_some_and(|base| http_client::parse(base).is_err()) {
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
    let found = ask_version(&guest.instance.reaper, &path).await?;
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
