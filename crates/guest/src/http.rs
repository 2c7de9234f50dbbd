//! Requests and answers as the operations see them, with their size limits.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body as HttpBody;
use hyper::upgrade::OnUpgrade;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::convert::Infallible;
use std::io;
use types::guest::ANSWER_HEADERS;

/// Largest JSON body, which is held in memory as a whole. Larger files are sent as form data or in
/// parts, which are not.
pub(crate) const JSON_BODY_BYTES_MAX: usize = 16 << 20;
/// How much of a refused body is still read.
const PASSED_BY_BYTES_MAX: usize = 32 << 20;
const BODY_STEP_BYTES: usize = 64 << 10;
/// How many pieces of a streamed answer may wait for a slow reader before the writer has to wait. Few,
/// because many readers may be slow, and this memory is the workload's.
const STREAM_PIECES_MAX: usize = 2;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;
/// The body of a request: from the connection, or generated here when one operation serves another.
pub(crate) type RequestBody = UnsyncBoxBody<Bytes, hyper::Error>;
/// The writing end of a streamed answer. Sending fails once the reader has gone.
pub(crate) type StreamSender = Sender<Bytes, io::Error>;

pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    query: String,
    body: RequestBody,
    upgrade: Option<OnUpgrade>,
}

impl Request {
    pub(crate) fn new(request: http::Request<RequestBody>) -> Self {
        let (mut parts, body) = request.into_parts();
        Self {
            method: parts.method,
            headers: parts.headers,
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body,
            upgrade: parts.extensions.remove(),
        }
    }

    /// Makes a request as it would arrive over the network, for an operation that is served by
    /// another one.
    pub(crate) fn made(method: Method, query: &[(&str, &str)], body: &serde_json::Value) -> Self {
        let body = Full::from(body.to_string()).map_err(|never| match never {}).boxed_unsync();
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
        Self { method, headers: HeaderMap::new(), query, body, upgrade: None }
    }

    /// Returns the first value of a query parameter.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    /// Reads a boolean query parameter, in the spelling of any language's client.
    pub(crate) fn query_flag(&self, name: &str) -> Result<Option<bool>, Error> {
        let Some(value) = self.query(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "t" => Ok(Some(true)),
            "false" | "0" | "f" => Ok(Some(false)),
            _ => Err(Error::BadRequest(format!("`{name}` is neither true nor false"))),
        }
    }

    pub(crate) fn query_number<N: std::str::FromStr>(
        &self,
        name: &str,
    ) -> Result<Option<N>, Error> {
        let Some(value) = self.query(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        value
            .parse()
            .map(Some)
            .map_err(|_| Error::BadRequest(format!("`{name}` is not a number that fits")))
    }

    pub(crate) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the body as a stream, for content too large for memory.
    pub(crate) fn into_body(self) -> RequestBody {
        self.body
    }

    /// Reads the whole body, up to the limit.
    pub(crate) async fn bytes(&mut self, limit: usize) -> Result<Bytes, Error> {
        if self.body.size_hint().lower() > limit as u64 {
            return Err(self.refuse_body(limit).await);
        }
        let mut whole = Vec::new();
        while let Some(frame) = self.body.frame().await {
            let frame = frame
                .map_err(|error| Error::BadRequest(format!("the body ended early: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > limit {
                drop(whole);
                return Err(self.refuse_body(limit).await);
            }
            // Grows in steps, because doubling would briefly take twice the limit.
            if whole.capacity() - whole.len() < data.len() {
                whole.reserve_exact(data.len().max(BODY_STEP_BYTES));
            }
            whole.extend_from_slice(&data);
        }
        Ok(whole.into())
    }

    /// Many callers read no answer before they have sent their body, so a little more of it is read
    /// and discarded.
    async fn refuse_body(&mut self, limit: usize) -> Error {
        let mut passed = 0;
        while passed < PASSED_BY_BYTES_MAX {
            let Some(Ok(frame)) = self.body.frame().await else { break };
            passed += frame.data_ref().map_or(0, Bytes::len);
        }
        Error::TooLarge { limit }
    }

    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        object_in(&self.bytes(JSON_BODY_BYTES_MAX).await?)
    }

    /// Like `json`, for operations whose body is optional.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(
        &mut self,
    ) -> Result<T, Error> {
        let bytes = self.bytes(JSON_BODY_BYTES_MAX).await?;
        if bytes.trim_ascii().is_empty() {
            return Ok(T::default());
        }
        object_in(&bytes)
    }

    /// Takes the connection itself, for protocols that replace HTTP on it.
    pub(crate) fn take_upgrade(&mut self) -> Option<OnUpgrade> {
        self.upgrade.take()
    }
}

/// Parses a JSON object. Without the check, a list would be accepted too, with its items as the
/// members in order.
fn object_in<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    if bytes.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err(Error::BadRequest("the body must be a JSON object, such as `{}`".into()));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Error::BadRequest(format!("invalid JSON: {error}")))
}

pub(crate) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
}

impl Answer {
    pub(crate) fn new(
        status: StatusCode,
        content_type: &'static str,
        body: impl Into<Bytes>,
    ) -> Self {
        let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
        Self { status, headers: HeaderMap::new(), body }.with(header::CONTENT_TYPE, content_type)
    }

    pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        let text = serde_json::to_vec(value).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(Self::new(StatusCode::OK, "application/json; charset=utf-8", text))
    }

    pub(crate) fn empty(status: StatusCode) -> Self {
        let body = Full::default().map_err(|never| match never {}).boxed_unsync();
        Self { status, headers: HeaderMap::new(), body }
    }

    /// Returns an answer whose body is written later through the sender.
    pub(crate) fn stream(content_type: &'static str) -> (StreamSender, Self) {
        let (sender, body) = Channel::new(STREAM_PIECES_MAX);
        let answer =
            Self { status: StatusCode::OK, headers: HeaderMap::new(), body: body.boxed_unsync() };
        (sender, answer.with(header::CONTENT_TYPE, content_type))
    }

    /// Keeps something until the answer has been sent, or its reader has gone.
    pub(crate) fn keeping(mut self, held: impl Send + 'static) -> Self {
        let keep = move |frame| {
            let _held = &held;
            frame
        };
        self.body = self.body.map_frame(keep).boxed_unsync();
        self
    }

    /// Wraps an answer that another library has made.
    pub(crate) fn of_response(
        response: Response<impl HttpBody<Data = Bytes, Error = Infallible> + Send + 'static>,
    ) -> Self {
        let (parts, body) = response.into_parts();
        let body = body.map_err(|never| match never {}).boxed_unsync();
        Self { status: parts.status, headers: parts.headers, body }
    }

    /// Returns the JSON that a caller would get.
    pub(crate) async fn into_json(self) -> Result<serde_json::Value, Error> {
        let body = Limited::new(self.body, JSON_BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|_| Error::TooLarge { limit: JSON_BODY_BYTES_MAX })?;
        serde_json::from_slice(&body.to_bytes()).map_err(|error| Error::Internal(error.to_string()))
    }

    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn with(self, name: header::HeaderName, value: &'static str) -> Self {
        self.with_value(name, HeaderValue::from_static(value))
    }

    pub(crate) fn with_value(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Adds the headers that every answer has.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        for (name, value) in ANSWER_HEADERS {
            let name = header::HeaderName::from_static(name);
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// The reason why an operation is refused. The text is sent to the caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    /// A file that must not be replaced. Clients know it by its code.
    #[error("{0}")]
    Exists(String),
    #[error("this path serves {}", allowed(.0))]
    Method(&'static [Method]),
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("the range cannot be served: the file has {length} bytes")]
    Range { length: u64 },
    #[error("{0}")]
    Unprocessable(String),
    #[error("{0}")]
    Internal(String),
    #[error("{0}")]
    Unavailable(String),
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) | Self::Exists(_) => StatusCode::CONFLICT,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Range { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn into_answer(self) -> Answer {
        let mut body = serde_json::json!({"error": self.to_string()});
        if matches!(self, Self::Exists(_)) {
            body["code"] = "FILE_ALREADY_EXISTS".into();
        }
        let kind = "application/json; charset=utf-8";
        let answer = Answer::new(self.status(), kind, body.to_string());
        let (name, value) = match self {
            Self::Range { length } => (header::CONTENT_RANGE, format!("bytes */{length}")),
            Self::Method(methods) => (header::ALLOW, allowed(methods)),
            _ => return answer,
        };
        match HeaderValue::from_str(&value) {
            Ok(value) => answer.with_value(name, value),
            Err(_) => answer,
        }
    }
}

/// Lists the methods that a path takes. HEAD is served wherever GET is, and OPTIONS everywhere.
fn allowed(methods: &[Method]) -> String {
    let mut names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    if methods.contains(&Method::GET) {
        names.push("HEAD");
    }
    names.push("OPTIONS");
    names.join(", ")
}
