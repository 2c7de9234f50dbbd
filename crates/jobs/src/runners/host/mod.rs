//! The part of the code host's REST API that runners need.
//!
//! Written by hand, for the documented endpoints only: the crates for this API bring a second HTTP
//! client, and the protocol of scale sets is not documented.

mod app;
mod pace;
mod remembered;

use super::connections::Connection;
use super::settings::Settings;
use super::webhooks::{RawJob, Report};
use app::Tokens;
use bytes::Bytes;
use pace::{Pace, Paces};
use remembered::Remembered;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, USER_AGENT,
};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use types::parts::Sensitive;
use types::{Timestamp, World};

const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Characters kept of the code host's message about a refusal.
const MESSAGE_CHARACTERS_MAX: usize = 200;
const PAGE: usize = 100;
/// The id of the runner group that every repository has.
const RUNNER_GROUP: i64 = 1;
const WORK_FOLDER: &str = "_work";
const API_VERSION: &str = "2022-11-28";

/// Why the code host did not do what we asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the code host takes no requests of this connection until {until}")]
    Limited { until: Timestamp },
    #[error("the code host cannot be reached: {0}")]
    Unreachable(String),
    #[error("the code host refused with {status}: {message}")]
    Refused { status: u16, message: String },
    #[error("{0}")]
    Credentials(&'static str),
    #[error("asking about the repository took more than {0} requests")]
    TooMany(usize),
}

/// A runner that was just registered.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) id: i64,
    /// Turns a program into this runner. It can be used once.
    pub(super) configuration: Sensitive<String>,
}

/// A runner as the code host lists it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Listed {
    pub(super) id: i64,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Removal {
    /// The code host no longer knows it.
    Gone,
    /// It is running a workflow job.
    Busy,
}

/// How many more requests may be made for one purpose.
pub(super) struct Allowance {
    left: usize,
    max: usize,
}

impl Allowance {
    pub(super) fn of(max: usize) -> Self {
        Self { left: max, max }
    }

    fn take(&mut self) -> Result<(), Fault> {
        self.left = self.left.checked_sub(1).ok_or(Fault::TooMany(self.max))?;
        Ok(())
    }
}

pub(super) struct CodeHost {
    http: Client,
    base: String,
    world: World,
    tokens: Tokens,
    paces: Paces,
    places: Semaphore,
    remembered: Remembered,
}

struct Response {
    status: StatusCode,
    body: Bytes,
}

impl CodeHost {
    pub(super) fn new(settings: &Settings, world: World) -> Result<Self, reqwest::Error> {
        // Following a redirect could send our credentials elsewhere.
        let http = Client::builder()
            .timeout(settings.answer_max)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            http,
            base: settings.api_url.trim_end_matches('/').to_owned(),
            world,
            tokens: Tokens::default(),
            paces: Paces::default(),
            places: Semaphore::new(settings.requests_max),
            remembered: Remembered::new(remembered::BYTES),
        })
    }

    /// Registers a runner that serves one workflow job.
    pub(super) async fn register(
        &self,
        connection: &Connection,
        repository: &str,
        name: &str,
        labels: &[String],
    ) -> Result<Registered, Fault> {
        #[derive(Deserialize)]
        struct Made {
            runner: Listed,
            encoded_jit_config: Sensitive<String>,
        }
        let path = format!("/repos/{repository}/actions/runners/generate-jitconfig");
        let asked = json!({
            "name": name, "runner_group_id": RUNNER_GROUP, "labels": labels, "work_folder": WORK_FOLDER,
        });
        let answer = self.ask(connection, Pace::Needed, Method::POST, &path, Some(asked)).await?;
        let made: Made = read(&accepted(answer)?)?;
        Ok(Registered { id: made.runner.id, configuration: made.encoded_jit_config })
    }

    pub(super) async fn remove(
        &self,
        connection: &Connection,
        repository: &str,
        id: i64,
    ) -> Result<Removal, Fault> {
        let path = format!("/repos/{repository}/actions/runners/{id}");
        let answer = self.ask(connection, Pace::Needed, Method::DELETE, &path, None).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(Removal::Gone),
            StatusCode::UNPROCESSABLE_ENTITY => Ok(Removal::Busy),
            _ => accepted(answer).map(|_| Removal::Gone),
        }
    }

    /// Returns all runners of a repository.
    pub(super) async fn runners(
        &self,
        connection: &Connection,
        repository: &str,
        allowance: &mut Allowance,
    ) -> Result<Vec<Listed>, Fault> {
        self.list(
            connection,
            &format!("/repos/{repository}/actions/runners?"),
            "runners",
            allowance,
        )
        .await
    }

    /// Returns the ids of all workflow runs with this status.
    pub(super) async fn runs(
        &self,
        connection: &Connection,
        repository: &str,
        status: &str,
        allowance: &mut Allowance,
    ) -> Result<Vec<i64>, Fault> {
        #[derive(Deserialize)]
        struct Run {
            id: i64,
        }
        let path = format!("/repos/{repository}/actions/runs?status={status}&");
        let runs: Vec<Run> = self.list(connection, &path, "workflow_runs", allowance).await?;
        Ok(runs.into_iter().map(|run| run.id).collect())
    }

    /// Returns the workflow jobs of a run's latest attempt.
    pub(super) async fn jobs(
        &self,
        connection: &Connection,
        repository: &str,
        run: i64,
        allowance: &mut Allowance,
    ) -> Result<Vec<Report>, Fault> {
        let path = format!("/repos/{repository}/actions/runs/{run}/jobs?filter=latest&");
        let jobs: Vec<RawJob> = self.list(connection, &path, "jobs", allowance).await?;
        Ok(jobs.into_iter().map(Report::from).collect())
    }

    /// Returns one workflow job, or `None` if the code host no longer knows it.
    pub(super) async fn job(
        &self,
        connection: &Connection,
        repository: &str,
        id: i64,
        allowance: &mut Allowance,
    ) -> Result<Option<Report>, Fault> {
        allowance.take()?;
        let path = format!("/repos/{repository}/actions/jobs/{id}");
        let answer = self.ask(connection, Pace::CanWait, Method::GET, &path, None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(Report::from(read::<RawJob>(&accepted(answer)?)?)))
    }

    /// Reads all items of a list, page by page.
    async fn list<T: DeserializeOwned>(
        &self,
        connection: &Connection,
        path: &str,
        member: &str,
        allowance: &mut Allowance,
    ) -> Result<Vec<T>, Fault> {
        let mut all = Vec::new();
        for page in 1.. {
            allowance.take()?;
            let path = format!("{path}per_page={PAGE}&page={page}");
            let answer = self.ask(connection, Pace::CanWait, Method::GET, &path, None).await?;
            let mut body: Value = read(&accepted(answer)?)?;
            let items = body.get_mut(member).map(Value::take).unwrap_or_default();
            let items: Vec<T> = serde_json::from_value(items).map_err(strange)?;
            let last = items.len() < PAGE;
            all.extend(items);
            if last {
                break;
            }
        }
        Ok(all)
    }

    /// Makes one request. If the answer was read before, its `ETag` is sent along; an answer that
    /// still holds does not count against the rate limit.
    async fn ask(
        &self,
        connection: &Connection,
        pace: Pace,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Response, Fault> {
        self.paces.check(&connection.id, pace, self.world.now())?;
        let token = self.tokens.get(self, connection).await?;
        let known = match method {
            Method::GET => self.remembered.get(&connection.id, path),
            _ => None,
        };
        let tag = known.as_ref().map(|(tag, _)| tag.clone());
        let (mut answer, headers) = self.send(&token, method.clone(), path, tag, body).await?;
        self.paces.note(&connection.id, answer.status, &headers, self.world.now())?;
        if answer.status == StatusCode::UNAUTHORIZED {
            self.tokens.forget(&connection.id);
        }
        match (known, headers.get(ETAG)) {
            (Some((_, kept)), _) if answer.status == StatusCode::NOT_MODIFIED => {
                answer = Response { status: StatusCode::OK, body: kept };
            }
            (_, Some(tag)) if method == Method::GET && answer.status == StatusCode::OK => {
                self.remembered.keep(&connection.id, path, (tag.clone(), answer.body.clone()));
            }
            _ => {}
        }
        Ok(answer)
    }

    async fn send(
        &self,
        token: &Sensitive<String>,
        method: Method,
        path: &str,
        tag: Option<HeaderValue>,
        body: Option<Value>,
    ) -> Result<(Response, HeaderMap), Fault> {
        let _place = self
            .places
            .acquire()
            .await
            .map_err(|_| Fault::Unreachable("the server is ending".into()))?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", token.0));
        let mut bearer =
            bearer.map_err(|_| Fault::Credentials("the token has characters that no token has"))?;
        bearer.set_sensitive(true);
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        request =
            request.header(AUTHORIZATION, bearer).header(ACCEPT, "application/vnd.github+json");
        request = request.header("x-github-api-version", API_VERSION).header(USER_AGENT, "holm");
        if let Some(tag) = tag {
            request = request.header(IF_NONE_MATCH, tag);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(unreachable)? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(Fault::Unreachable(format!(
                    "it answered with more than {ANSWER_BYTES_MAX} bytes"
                )));
            }
        }
        // It may be remembered, which counts its length and not its capacity.
        body.shrink_to_fit();
        Ok((Response { status, body: body.into() }, headers))
    }
}

fn unreachable(error: reqwest::Error) -> Fault {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    Fault::Unreachable(format!("{error}{}", cause.unwrap_or_default()))
}

fn strange(error: serde_json::Error) -> Fault {
    Fault::Unreachable(format!("its answer cannot be read: {error}"))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(strange)
}

/// Returns the body of an answer, unless the answer is a refusal.
fn accepted(answer: Response) -> Result<Bytes, Fault> {
    let status = answer.status;
    if status.is_success() {
        return Ok(answer.body);
    }
    if status.is_server_error() {
        return Err(Fault::Unreachable(format!("it answered with {status}")));
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
    let plain = message.chars().filter(|character| !character.is_control());
    Err(Fault::Refused {
        status: status.as_u16(),
        message: plain.take(MESSAGE_CHARACTERS_MAX).collect(),
    })
}
