//! The HTTP client of a Holm server.

mod change;
pub(crate) mod choose;
pub(crate) mod contexts;
pub(crate) mod files;
pub(crate) mod kinds;
pub(crate) mod lines;
pub(crate) mod log_lines;
mod one;
pub(crate) mod processes;
mod retries;
pub(crate) mod sign_in;
mod socket;
pub(crate) mod target;
pub(crate) mod upload;
pub(crate) mod workload;

pub(crate) use socket::Socket;

use crate::error::Error;
use crate::world;
use contexts::{Contexts, Credentials};
use http::{HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use std::time::Duration;
use target::Target;
use types::World;

/// The API version that the command line is written for.
const VERSION: &str = "2026-04-28";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for requests that copy files before they are answered.
const SLOW_ANSWER_TIMEOUT: Duration = Duration::from_secs(1800);
/// Most pages of a list that are shown; after these a note tells the user to narrow it with `-q`.
const PAGES_MAX: usize = 1000;
/// A token with less time left than this is renewed first.
const RENEW_BEFORE_S: i64 = 60;

/// Options that every command accepts.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Choice {
    /// Address of the server, such as http://127.0.0.1:8700; by default $HOLM_URL, or the server of
    /// `holm login`
    #[arg(long, global = true, value_name = "ADDRESS", help_heading = "Server")]
    pub(crate) server: Option<String>,
    /// Workspace to work in; by default $HOLM_WORKSPACE, or that of `holm login`
    #[arg(short, long, global = true, value_name = "NAME", help_heading = "Server")]
    pub(crate) workspace: Option<String>,
    /// Server and account to use, by the name that `holm login` gave them; by default
    /// $HOLM_CONTEXT, or the one in use
    #[arg(long, global = true, value_name = "NAME", help_heading = "Server")]
    pub(crate) context: Option<String>,
}

/// A server, a workspace and the credentials to use them.
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    workspace: Option<String>,
    credentials: Credentials,
    /// Name of the context that the credentials come from, into which renewed sessions are written.
    context: Option<String>,
    world: World,
}

/// Query parameters of a request.
pub(crate) type Query<'a> = &'a [(&'a str, &'a str)];

impl Client {
    pub(crate) fn new(
        server: &str,
        workspace: Option<String>,
        credentials: Credentials,
        context: Option<String>,
    ) -> Result<Self, Error> {
        if let Credentials::ApiKey(key) = &credentials
            && HeaderValue::from_str(key).is_err()
        {
            let message = "the API key is not valid: it has a line break or another character that no key has";
            return Err(Error::NoCredentials(message.into()));
        }
        Ok(Self {
            http: http_client()?,
            base: base(server)?,
            workspace,
            credentials,
            context,
            world: world::system(),
        })
    }

    pub(crate) fn workspace(&self) -> Option<&str> {
        self.workspace.as_deref()
    }

    /// Returns the name of the context that the credentials come from, if any.
    pub(crate) fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Returns the credentials, which may have been renewed since.
    pub(crate) fn into_credentials(self) -> Credentials {
        self.credentials
    }

    /// True if requests go to the server at this address.
    pub(crate) fn is_of(&self, server: &str) -> bool {
        base(server).is_ok_and(|other| other.origin() == self.base.origin())
    }

    pub(crate) fn server(&self) -> String {
        self.base.as_str().trim_end_matches("/v0/").to_owned()
    }

    pub(crate) async fn get(&mut self, path: &str, query: Query<'_>) -> Result<Value, Error> {
        self.call(Method::GET, path, query, None).await
    }

    /// Like `get`, but returns `None` if the object does not exist.
    pub(crate) async fn find(&mut self, path: &str) -> Result<Option<Value>, Error> {
        match self.get(path, &[]).await {
            Ok(value) => Ok(Some(value)),
            Err(Error::Answer { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn call(
        &mut self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        Ok(self.exchange(method, path, query, body).await?.1)
    }

    /// Posts a request that may take long, for example because the server copies files.
    pub(crate) async fn post_slow(&mut self, path: &str, body: &Value) -> Result<Value, Error> {
        let within = SLOW_ANSWER_TIMEOUT;
        Ok(self.exchange_within(within, Method::POST, path, &[], Some(body)).await?.1)
    }

    /// Sends a request and returns the answer with its headers.
    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: Option<&Value>,
    ) -> Result<(HeaderMap, Value), Error> {
        self.exchange_within(ANSWER_TIMEOUT, method, path, query, body).await
    }

    async fn exchange_within(
        &mut self,
        within: Duration,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: Option<&Value>,
    ) -> Result<(HeaderMap, Value), Error> {
        let request = self.request(method, path, query).await?.timeout(within);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.answer(request).await
    }

    /// Sends a request and reads its answer as JSON.
    async fn answer(&self, request: RequestBuilder) -> Result<(HeaderMap, Value), Error> {
        let response = self.send(request).await?;
        let headers = response.headers().clone();
        let bytes = response.bytes().await.map_err(|source| self.unreachable(source))?;
        if bytes.is_empty() {
            return Ok((headers, Value::Null));
        }
        let answer = serde_json::from_slice(&bytes).map_err(|_| Error::NotHolm {
            server: self.server(),
            message: "the answer is not JSON".into(),
        })?;
        Ok((headers, answer))
    }

    /// Returns all objects of a collection, page by page. A collection answered as a bare array is
    /// a single page.
    pub(crate) async fn list(
        &mut self,
        target: &Target,
        query: Query<'_>,
    ) -> Result<Vec<Value>, Error> {
        let mut items = Vec::new();
        let mut cursor = String::new();
        for _ in 0..PAGES_MAX {
            let mut asked = query.to_vec();
            asked.push(("limit", target.kind.page()));
            if !cursor.is_empty() {
                asked.push(("cursor", &cursor));
            }
            let (page, next) = page(self.get(&target.collection, &asked).await?);
            items.extend(page);
            match next {
                Some(next) => cursor = next,
                None => return Ok(items),
            }
        }
        crate::term::note(format!(
            "only the first {} are shown; narrow the list with -q or --status",
            items.len()
        ));
        Ok(items)
    }

    /// Opens a stream of events, whose lines are read as they arrive.
    pub(crate) async fn stream(&mut self, path: &str, query: Query<'_>) -> Result<Response, Error> {
        let request = self
            .request(Method::GET, path, query)
            .await?
            .header(http::header::ACCEPT, "text/event-stream");
        self.send(request).await
    }

    async fn request(
        &mut self,
        method: Method,
        path: &str,
        query: Query<'_>,
    ) -> Result<RequestBuilder, Error> {
        let bearer = self.bearer().await?;
        let url = self
            .base
            .join(path)
            .map_err(|_| Error::Usage(format!("`{path}` cannot be part of an address")))?;
        let request = self
            .http
            .request(method, url)
            .query(query)
            .bearer_auth(bearer)
            .header("Blaxel-Version", VERSION);
        Ok(match &self.workspace {
            Some(workspace) => request.header("X-Blaxel-Workspace", workspace),
            None => request,
        })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|source| self.unreachable(source))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.unwrap_or_default();
        Err(self.advise(refused(status, &text)))
    }

    /// Says where credentials come from that are not accepted. `holm login` would not replace those
    /// of a variable.
    fn advise(&self, error: Error) -> Error {
        let variable = match self.context {
            Some(_) => None,
            None => choose::credentials_variable(),
        };
        match (error, variable) {
            (Error::Answer { status: StatusCode::UNAUTHORIZED, message, .. }, Some(name)) => {
                let next = format!(
                    "they come from {name}: correct it, or unset it to use those of `holm login`"
                );
                Error::Answer { status: StatusCode::UNAUTHORIZED, message, next: Some(next) }
            }
            (other, _) => other,
        }
    }

    fn unreachable(&self, source: reqwest::Error) -> Error {
        Error::Unreachable { server: self.server(), source: source.without_url() }
    }

    /// Returns the bearer token for requests. A session is renewed shortly before it expires.
    pub(crate) async fn bearer(&mut self) -> Result<String, Error> {
        if let Credentials::ApiKey(key) = &self.credentials {
            return Ok(key.clone());
        }
        if !self.is_fresh() {
            match self.context.clone() {
                Some(context) => self.renew_for_all(&context).await?,
                None => self.renew().await?,
            }
        }
        match &self.credentials {
            Credentials::Session { access_token, .. } => Ok(access_token.clone()),
            Credentials::ApiKey(_) | Credentials::ServiceAccount(_) => Err(Error::NotSignedIn),
        }
    }

    fn is_fresh(&self) -> bool {
        let now_s = self.world.now().seconds();
        matches!(&self.credentials, Credentials::Session { expires_at, .. } if *expires_at > now_s + RENEW_BEFORE_S)
    }

    /// Renews the session of a context, unless another process has done so meanwhile. A refresh
    /// token is good for one use, and a second one ends the session, so only one process does this
    /// at a time, and always with what the file has.
    async fn renew_for_all(&mut self, name: &str) -> Result<(), Error> {
        let locked = tokio::task::spawn_blocking(Contexts::lock).await;
        let _alone = locked.map_err(|error| Error::Failed(error.to_string()))??;
        let mut contexts = Contexts::load()?;
        let kept = contexts.named_mut(name).filter(|context| {
            matches!(context.credentials, Credentials::Session { .. })
                && self.is_of(&context.server)
        });
        let Some(kept) = kept else { return self.renew().await };
        self.credentials = kept.credentials.clone();
        if self.is_fresh() {
            return Ok(());
        }
        self.renew().await?;
        kept.credentials = self.credentials.clone();
        contexts.save()
    }

    async fn renew(&mut self) -> Result<(), Error> {
        let now_s = self.world.now().seconds();
        self.credentials = match &self.credentials {
            Credentials::ApiKey(_) => return Ok(()),
            Credentials::Session { refresh_token, account, .. } => {
                let account = account.as_ref();
                sign_in::renew(&self.http, &self.base, refresh_token, account, now_s).await?
            }
            Credentials::ServiceAccount(account) => {
                sign_in::client_credentials(&self.http, &self.base, account, now_s).await?
            }
        };
        Ok(())
    }
}

pub(crate) fn http_client() -> Result<reqwest::Client, Error> {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(concat!("holm/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Error::Start {
            act: "prepare the HTTP client".into(),
            message: error.to_string(),
        })
}

/// Returns the base URL of the management API for an address given with or without `/v0`.
pub(crate) fn base(server: &str) -> Result<Url, Error> {
    let trimmed = server.trim_end_matches('/').trim_end_matches("/v0");
    match Url::parse(&format!("{trimmed}/v0/")) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.path() == "/v0/" => Ok(url),
        Ok(url) if url.host().is_some() && url.path() != "/v0/" => Err(Error::Usage(format!(
            "`{server}` has a path; the address of a server has none, such as http://127.0.0.1:8700"
        ))),
        _ => {
            Err(Error::Usage(format!("`{server}` is not an address such as http://127.0.0.1:8700")))
        }
    }
}

/// Returns the objects of an answer and the cursor of the next page, whatever shape the answer has.
fn page(answer: Value) -> (Vec<Value>, Option<String>) {
    match answer {
        Value::Array(items) => (items, None),
        Value::Object(mut page) if page.get("data").is_some_and(Value::is_array) => {
            let more = page
                .get("meta")
                .and_then(|meta| meta.get("hasMore"))
                .and_then(Value::as_bool)
                .unwrap_or(false);
            let next = page
                .get("meta")
                .and_then(|meta| meta.get("nextCursor"))
                .and_then(Value::as_str)
                .map(str::to_owned);
            let items =
                page.remove("data").and_then(|data| data.as_array().cloned()).unwrap_or_default();
            (items, next.filter(|next| more && !next.is_empty()))
        }
        Value::Null => (Vec::new(), None),
        one => (vec![one], None),
    }
}

/// Makes an error of an unsuccessful answer of the management interface.
fn refused(status: StatusCode, text: &str) -> Error {
    let Said { message, action } = Said::read(status, text);
    Error::Answer { status, message, next: action.or_else(|| Error::next_after(status)) }
}

/// What an unsuccessful answer says.
struct Said {
    message: String,
    /// What to do now. Only the edge says so.
    action: Option<String>,
}

impl Said {
    /// Places of the message: in answers of the management interface, of the edge, of models in the
    /// dialects of their providers, and of OAuth.
    const MESSAGES: [&str; 4] = ["/message", "/error/message", "/error_description", "/error"];
    const CHARS_MAX: usize = 2000;

    fn read(status: StatusCode, text: &str) -> Self {
        let body: Option<Value> = serde_json::from_str(text).ok();
        let field = |at: &&str| {
            let text = body.as_ref()?.pointer(at)?.as_str().filter(|text| !text.is_empty())?;
            let text: String = text.chars().take(Self::CHARS_MAX).collect();
            Some(crate::term::harmless(&text))
        };
        let message = Self::MESSAGES.iter().find_map(field);
        Self {
            message: message.unwrap_or_else(|| format!("the server answered {status}")),
            action: field(&"/error/action"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_of_lists_are_read() {
        assert_eq!(page(json!([1, 2])), (vec![json!(1), json!(2)], None));
        let paged = json!({"data": [1], "meta": {"hasMore": true, "nextCursor": "c"}});
        assert_eq!(page(paged), (vec![json!(1)], Some("c".into())));
        assert_eq!(
            page(json!({"data": [], "meta": {"hasMore": false, "nextCursor": ""}})),
            (vec![], None)
        );
    }

    #[test]
    fn an_address_may_have_the_interface_part_or_not() {
        for server in ["http://h:1", "http://h:1/", "http://h:1/v0", "http://h:1/v0/"] {
            assert_eq!(base(server).unwrap().as_str(), "http://h:1/v0/");
        }
        assert!(base("h:1").is_err());
        let wrong = base("http://h:1/elsewhere").unwrap_err().to_string();
        assert!(wrong.contains("has a path"), "{wrong}");
    }

    #[test]
    fn a_refusal_is_told_without_control_characters() {
        let said = |status, text| Said::read(status, text).message;
        let text = r#"{"error":"x","message":"no\u001b[2J"}"#;
        assert_eq!(said(StatusCode::BAD_REQUEST, text), "no[2J");
        let nothing = said(StatusCode::BAD_GATEWAY, "<html>");
        assert_eq!(nothing, "the server answered 502 Bad Gateway");
    }
}
