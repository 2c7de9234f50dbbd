//! Requests to workloads themselves (sandboxes, agents, functions) through the data plane.

use super::target::Target;
use super::{Client, Said};
use crate::error::Error;
use crate::world;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::Mutex;
use types::World;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest silence of a workload before it answers; the server does not wait longer either.
const SILENCE_MAX: Duration = Duration::from_secs(15 * 60);
/// Largest accepted JSON answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Encodes everything in a path segment but unreserved characters.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A workload and the credentials to use it. Supports concurrent requests.
pub(crate) struct Workload {
    client: Mutex<Client>,
    http: reqwest::Client,
    url: String,
    pub(crate) name: String,
    /// The folder below which the paths are that the user knows, if it is not all of it.
    root: String,
    workspace: Option<String>,
    pub(crate) world: World,
    /// Unfinished multipart uploads.
    pub(super) uploads: parking_lot::Mutex<HashSet<String>>,
}

impl Workload {
    /// Asks the server for the workload's address. Redirects from the workload are returned as they
    /// are, because following one would send the credentials wherever it leads.
    pub(crate) async fn find(mut client: Client, target: &Target) -> Result<Self, Error> {
        let name = target.name.clone().unwrap_or_default();
        let object = client.get(&target.object(&name)?, &[]).await?;
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let workspace =
            client.workspace().map(str::to_owned).or_else(|| text("/metadata/workspace"));
        let url = text("/metadata/url").filter(|url| !url.is_empty()).unwrap_or_else(|| {
            let workspace = workspace.as_deref().unwrap_or_default();
            format!("{}/{workspace}/{}/{name}", client.server(), target.kind.name())
        });
        if client.server().starts_with("https:") && !url.starts_with("https:") {
            let message = format!(
                "the server says that `{name}` is at {url}, where your credentials would pass unencrypted; its setting `server.public_url` should begin with https"
            );
            return Err(Error::NotServed(message));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_MAX)
            .redirect(Policy::none())
            // Only HTTP/1.1 can upgrade to a WebSocket.
            .http1_only()
            .user_agent(concat!("holm/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::Start {
                act: "prepare the HTTP client".into(),
                message: error.to_string(),
            })?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self {
            client: Mutex::new(client),
            http,
            url,
            name,
            root: String::new(),
            workspace,
            world: world::system(),
            uploads: parking_lot::Mutex::default(),
        })
    }

    /// Returns the same sandbox as what messages call a volume that it mounts at `root`.
    pub(crate) fn into_volume(self, volume: &str, root: &str) -> Self {
        Self { name: volume.to_owned(), root: root.to_owned(), ..self }
    }

    /// Returns a path as the user knows it.
    pub(crate) fn known_path<'p>(&self, path: &'p str) -> &'p str {
        match path.strip_prefix(&self.root) {
            Some("") => "/",
            Some(below) if below.starts_with('/') => below,
            _ => path,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts a request with the caller's credentials. `path` must be encoded already and begin
    /// with a slash.
    pub(crate) async fn request(
        &self,
        method: Method,
        path: &str,
    ) -> Result<RequestBuilder, Error> {
        self.request_below(method, "", path).await
    }

    /// Like `request`, but for a path from elsewhere, which must not lead out of `place`.
    pub(crate) async fn request_below(
        &self,
        method: Method,
        place: &str,
        path: &str,
    ) -> Result<RequestBuilder, Error> {
        let url = below(&format!("{}{place}", self.url), path)?;
        let bearer = self.client.lock().await.bearer().await?;
        // `Authorization` is left free, since the workload may use it for itself.
        let request = self
            .http
            .request(method, url)
            .header("X-Blaxel-Authorization", format!("Bearer {bearer}"));
        Ok(match &self.workspace {
            Some(workspace) => request.header("X-Blaxel-Workspace", workspace),
            None => request,
        })
    }

    /// Returns the answer, whatever its status.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        request.send().await.map_err(|source| self.unreachable(source))
    }

    /// Returns the answer if it was successful.
    pub(crate) async fn ask(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = self.send(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response).await)
    }

    /// Returns the answer as JSON.
    pub(crate) async fn ask_json(&self, request: RequestBuilder) -> Result<Value, Error> {
        let mut response = self.ask(request).await?;
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|source| self.unreachable(source))? {
            body.extend_from_slice(&piece);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(self.odd("the answer has no end"));
            }
        }
        serde_json::from_slice(&body).map_err(|_| self.odd("the answer is not JSON"))
    }

    pub(crate) fn unreachable(&self, source: reqwest::Error) -> Error {
        Error::Unreachable { server: self.url.clone(), source: source.without_url() }
    }

    /// Returns the error of an answer that ends too early.
    pub(crate) fn broke_off(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::BrokeOff { name: self.name.clone(), source: source.into() }
    }

    pub(crate) fn odd(&self, message: &str) -> Error {
        Error::NotHolm { server: self.url.clone(), message: message.to_owned() }
    }
}

/// Joins place and path. URLs are normalised before they are sent, so `..` could lead out of the
/// place; that is refused.
fn below(place: &str, path: &str) -> Result<Url, Error> {
    let refused = || Error::Usage(format!("`{path}` cannot be part of an address"));
    let parse = |text: &str| Url::parse(text).map_err(|_| refused());
    let (place, url) = (parse(place)?, parse(&format!("{place}{path}"))?);
    let rest = url.path().strip_prefix(place.path().trim_end_matches('/'));
    let inside = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let same = url.origin() == place.origin() && url.username().is_empty();
    if inside && same { Ok(url) } else { Err(refused()) }
}

/// True if the edge answered, because the workload could not.
pub(crate) fn is_of_platform(response: &Response) -> bool {
    response.headers().get("X-Blaxel-Source").is_some_and(|source| source == "platform")
}

/// Makes an error of an unsuccessful answer. What a workload answers itself gets no advice: nobody
/// here knows what its status means.
pub(crate) async fn refusal(response: Response) -> Error {
    let status = response.status();
    let is_of_platform = is_of_platform(&response);
    let wait =
        response.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
    let wait = wait.map(|seconds: u64| format!("repeat the command in {seconds} s"));
    // If the text cannot be read, the status is still reported.
    let text = response.text().await.unwrap_or_default();
    let Said { message, action } = Said::read(status, &text);
    Error::Answer { status, message, next: action.or(wait).filter(|_| is_of_platform) }
}

/// Encodes any text as one path segment.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Encodes a file's path as one segment, so that no proxy normalises it. A relative path gets `./`
/// in front, or a file called `tree` would be taken for another operation.
pub(crate) fn file_segment(path: &str) -> String {
    match path.chars().next() {
        Some('/' | '~') => segment(path),
        _ => segment(&format!("./{path}")),
    }
}

#[cfg(test)]
impl Workload {
    /// Returns a workload at an address, for tests.
    pub(super) fn at(url: &str) -> Self {
        // Fails only if it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = super::contexts::Credentials::ApiKey("key".into());
        Self {
            client: Mutex::new(Client::new(url, None, key, None).unwrap()),
            http: reqwest::Client::new(),
            url: url.to_owned(),
            name: "box".into(),
            root: String::new(),
            workspace: None,
            world: world::system(),
            uploads: parking_lot::Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_one_segment() {
        assert_eq!(file_segment("/tmp/a b"), "%2Ftmp%2Fa%20b");
        assert_eq!(file_segment("tree/x"), ".%2Ftree%2Fx");
        assert_eq!(file_segment("~/x"), "~%2Fx");
    }

    #[test]
    fn a_path_of_a_volume_is_told_as_the_user_knows_it() {
        let sandbox = Workload::at("http://h");
        assert_eq!((sandbox.known_path("/a"), sandbox.known_path("a")), ("/a", "a"));
        let volume = sandbox.into_volume("disk", "/data");
        for (path, known) in [("/data/a/b", "/a/b"), ("/data", "/"), ("/database", "/database")] {
            assert_eq!(volume.known_path(path), known);
        }
    }

    #[test]
    fn an_address_does_not_leave_its_place() {
        let place = "http://h/main/sandboxes/box/port/80";
        for path in ["", "/", "/a/../b", "/?a=../..", "?q"] {
            assert!(below(place, path).is_ok(), "{path}");
        }
        for path in ["/../81", "/%2e%2e/%2E./x", "/..\\..\\x", "81", ".evil", "/../../../other"] {
            assert!(below(place, path).is_err(), "{path}");
        }
        assert!(below("http://h", "@evil/").is_err() && below("http://h", ".evil/").is_err());
        assert!(below("http://h", ":99/").is_err());
    }

    proptest! {
        #[test]
        fn no_path_leads_elsewhere(path in "\\PC{0,30}|[./]{0,8}") {
            let address = format!("http://h/main/sandboxes/box/filesystem/{}", file_segment(&path));
            let url = Url::parse(&address).unwrap();
            prop_assert!(url.path().starts_with("/main/sandboxes/box/filesystem/"));
            prop_assert_eq!(url.as_str(), address);
        }
    }
}
