//! Requests to one repository of a registry, with authentication and retries.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{ACCEPT, RANGE, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use url::Url;
use zeroize::Zeroizing;

use super::challenge::Challenge;
use super::credentials::Credentials;
use super::error::PullError;
use super::retries::RetryPolicy;
use crate::reference::{DEFAULT_HOST, Reference};

const DEFAULT_REGISTRY: &str = "registry-1.docker.io";
const TOKEN_BYTES_MAX: usize = 64 << 10;

pub(super) struct Registry<'a> {
    http: &'a Client,
    base: Url,
    scope: String,
    credentials: &'a Credentials,
    pub(super) retries: &'a RetryPolicy,
    granted: Mutex<Option<Grant>>,
}

#[derive(Clone)]
enum Grant {
    Basic { user: String, password: Zeroizing<String> },
    Bearer(Zeroizing<String>),
}

/// A token, under either member name or both.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Registry<'a> {
    pub(super) fn new(
        http: &'a Client,
        image: &Reference,
        credentials: &'a Credentials,
        retries: &'a RetryPolicy,
    ) -> Result<Self, PullError> {
        let host = image.host().filter(|host| *host != DEFAULT_HOST);
        let path = match (host, image.path()) {
            (None, path) if !path.contains('/') => format!("library/{path}"),
            (_, path) => path.to_owned(),
        };
        let host = host.unwrap_or(DEFAULT_REGISTRY);
        let scheme = if is_loopback(host) { "http" } else { "https" };
        let base =
            Url::parse(&format!("{scheme}://{host}/v2/{path}/")).map_err(|_| PullError::Address)?;
        let granted = match credentials {
            Credentials::Bearer(token) => Some(Grant::Bearer(token.clone())),
            Credentials::None | Credentials::Basic { .. } => None,
        };
        let scope = format!("repository:{path}:pull");
        Ok(Self { http, base, scope, credentials, retries, granted: Mutex::new(granted) })
    }

    /// Sends a request, and repeats it until the answer is final.
    pub(super) async fn get(
        &self,
        path: &str,
        accept: &str,
        from: u64,
    ) -> Result<Response, PullError> {
        let url = self.base.join(path).map_err(|_| PullError::Address)?;
        let mut attempt = 0;
        let mut asked_for_access = false;
        loop {
            let mut request = self.http.get(url.clone()).header(ACCEPT, accept);
            if from > 0 {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            let outcome = self.send(self.authorized(request)).await;
            attempt += 1;
            let (problem, wait) = match outcome {
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED && !asked_for_access => {
                    asked_for_access = true;
                    self.authenticate(&answer).await?;
                    continue;
                }
                Ok(answer) => match judge(answer)? {
                    Verdict::Final(answer) => return Ok(answer),
                    Verdict::Repeat { problem, wait } => (problem, wait),
                },
                Err(error) => (error, None),
            };
            if attempt >= self.retries.attempts_max {
                return Err(problem);
            }
            self.pause(attempt, wait).await;
        }
    }

    /// Waits before the next attempt: longer each time, or as long as the registry says, up to our
    /// own limit.
    pub(super) async fn pause(&self, attempt: u32, wait: Option<Duration>) {
        let backoff = self.retries.pause.saturating_mul(1 << attempt.min(10));
        tokio::time::sleep(wait.unwrap_or(backoff).min(self.retries.pause_max)).await;
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, PullError> {
        let answer = tokio::time::timeout(self.retries.stall, request.send()).await;
        answer.map_err(|_| PullError::Stalled)?.map_err(PullError::network)
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        match &*self.granted.lock() {
            None => request,
            Some(Grant::Basic { user, password }) => {
                request.basic_auth(user, Some(password.as_str()))
            }
            Some(Grant::Bearer(token)) => request.bearer_auth(token.as_str()),
        }
    }

    async fn authenticate(&self, answer: &Response) -> Result<(), PullError> {
        let grant = match (Challenge::read(answer.headers()), self.credentials) {
            (Some(Challenge::Basic), Credentials::Basic { user, password }) => {
                Grant::Basic { user: user.clone(), password: password.clone() }
            }
            (
                Some(Challenge::Bearer { realm, service, scope }),
                Credentials::None | Credentials::Basic { .. },
            ) => Grant::Bearer(self.token(&realm, service, scope).await?),
            _ => return Err(PullError::Unauthorized),
        };
        *self.granted.lock() = Some(grant);
        Ok(())
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<Zeroizing<String>, PullError> {
        let mut url = Url::parse(realm).map_err(|_| PullError::Address)?;
        // A password meant for TLS must not be sent without it.
        if url.scheme() != "https" && self.base.scheme() == "https" {
            return Err(PullError::Address);
        }
        // Names are checked when they are resolved. A literal IP address must be that of the
        // registry itself.
        if !matches!(url.host(), Some(url::Host::Domain(_))) && url.host() != self.base.host() {
            return Err(PullError::Address);
        }
        url.query_pairs_mut().extend_pairs(service.map(|service| ("service", service)));
        url.query_pairs_mut().append_pair("scope", scope.as_deref().unwrap_or(&self.scope));
        let mut request = self.http.get(url);
        if let Credentials::Basic { user, password } = self.credentials {
            request = request.basic_auth(user, Some(password.as_str()));
        }
        match judge(self.send(request).await?)? {
            Verdict::Final(answer) => {
                let bytes = self.document(answer, TOKEN_BYTES_MAX as u64).await?;
                let token: Token =
                    serde_json::from_slice(&bytes).map_err(|_| PullError::Unauthorized)?;
                token.token.or(token.access_token).map(Into::into).ok_or(PullError::Unauthorized)
            }
            Verdict::Repeat { problem, .. } => Err(problem),
        }
    }

    /// Reads a whole answer into memory.
    pub(super) async fn document(
        &self,
        mut answer: Response,
        bytes_max: u64,
    ) -> Result<Vec<u8>, PullError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk(&mut answer).await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > bytes_max {
                return Err(
                    crate::Error::Limit { what: "bytes in one document", max: bytes_max }.into()
                );
            }
        }
        Ok(bytes)
    }

    pub(super) async fn chunk(
        &self,
        answer: &mut Response,
    ) -> Result<Option<bytes::Bytes>, PullError> {
        let chunk = tokio::time::timeout(self.retries.stall, answer.chunk()).await;
        chunk.map_err(|_| PullError::Stalled)?.map_err(PullError::network)
    }
}

enum Verdict {
    Final(Response),
    Repeat { problem: PullError, wait: Option<Duration> },
}

fn judge(answer: Response) -> Result<Verdict, PullError> {
    let status = answer.status();
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(PullError::Unauthorized),
        StatusCode::NOT_FOUND => Err(PullError::NotFound),
        StatusCode::TOO_MANY_REQUESTS => {
            let seconds = answer
                .headers()
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            Ok(Verdict::Repeat { problem: PullError::Busy, wait: seconds.map(Duration::from_secs) })
        }
        _ if status.is_server_error() => {
            Ok(Verdict::Repeat { problem: PullError::Registry(status.as_u16()), wait: None })
        }
        _ if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => {
            Ok(Verdict::Final(answer))
        }
        _ => Err(PullError::Registry(status.as_u16())),
    }
}

/// Returns whether a host is on this machine. Such registries are asked without TLS, as all clients
/// do.
fn is_loopback(host: &str) -> bool {
    let Ok(url) = Url::parse(&format!("http://{host}/")) else { return false };
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}
