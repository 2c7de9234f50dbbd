//! One request, from its path to the last byte of its answer.

use crate::behaviour::Behaviour;
use crate::dialects::{self, Dialect, Piece};
use crate::records::{Records, Request as Remembered};
use crate::reply::{Asked, Reply, Usage};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Body = UnsyncBoxBody<Bytes, io::Error>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const INSIDE: HeaderValue = HeaderValue::from_static("http://169.254.169.254/latest/meta-data/");

static NUMBER: AtomicU64 = AtomicU64::new(1);

pub(crate) async fn answer(request: Request<Incoming>, records: Arc<Records>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let path = percent_decode_str(head.uri.path()).decode_utf8_lossy().into_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    if path.starts_with("/standin/") {
        return told(&path, &query, &records);
    }
    let (mut behaviour, path) = Behaviour::in_front_of(&path);
    if let Some(words) = head.headers.get("x-standin").and_then(|words| words.to_str().ok()) {
        behaviour.add(words);
    }
    let Ok(body) = body.collect().await.map(http_body_util::Collected::to_bytes) else {
        return plain(StatusCode::BAD_REQUEST, &json!({"error": "the body has no end"}));
    };
    let parsed: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut call = Call { asked: Asked::default(), behaviour, path, query, records };
    let dialect = call.read(&parsed);
    if call.records.remembers() {
        call.remember(&head, &body);
    }
    match dialect {
        Some(dialect) if head.method == Method::POST => call.answer(dialect, &parsed).await,
        _ => call.answer_more(&head.method, &head.headers),
    }
}

fn told(path: &str, query: &str, records: &Records) -> Response<Body> {
    let model = query.strip_prefix("model=");
    let model = model.map(|model| percent_decode_str(model).decode_utf8_lossy().into_owned());
    match path {
        "/standin/served" => plain(StatusCode::OK, &records.served(model.as_deref())),
        "/standin/requests" => plain(StatusCode::OK, &records.requests(model.as_deref())),
        _ => plain(StatusCode::NOT_FOUND, &json!({"error": "served or requests?"})),
    }
}

impl Behaviour {
    /// Splits a path into the behaviour at its start and the rest.
    fn in_front_of(path: &str) -> (Self, String) {
        let mut behaviour = Self::default();
        let Some(rest) = path.strip_prefix("/with/") else { return (behaviour, path.to_owned()) };
        let (words, rest) = rest.split_once('/').unwrap_or((rest, ""));
        behaviour.add(words);
        (behaviour, format!("/{rest}"))
    }
}

struct Call {
    asked: Asked,
    behaviour: Behaviour,
    path: String,
    query: String,
    records: Arc<Records>,
}

impl Call {
    fn read(&mut self, body: &Value) -> Option<Dialect> {
        let dialect = Dialect::of(&self.path);
        self.asked = dialects::read(dialect, &self.path, body);
        if let Some((_, words)) = self.asked.model.split_once('+') {
            self.behaviour.add(words);
        }
        dialect
    }

    fn remember(&self, head: &http::request::Parts, body: &Bytes) {
        let headers = head.headers.iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        self.records.remember(Remembered {
            model: self.asked.model.clone(),
            method: head.method.to_string(),
            path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            http: format!("{:?}", head.version),
            headers: headers.collect(),
            body: String::from_utf8_lossy(body).into_owned(),
        });
    }

    async fn answer(self, dialect: Dialect, body: &Value) -> Response<Body> {
        let before = self.records.count(&self.asked.model, |served| {
            served.calls += 1;
            served.calls - 1
        });
        if !self.behaviour.head && !self.behaviour.first.is_zero() {
            tokio::time::sleep(self.behaviour.first).await;
        }
        if self.behaviour.hang {
            std::future::pending::<()>().await;
        }
        if self.behaviour.drop {
            return broken();
        }
        if self.behaviour.redirect {
            let mut moved = plain(StatusCode::FOUND, &json!({}));
            moved.headers_mut().insert(LOCATION, INSIDE);
            return moved;
        }
        let fails = self.behaviour.failing.is_none_or(|failing| before < failing);
        if let Some(status) = self.behaviour.status.filter(|_| fails) {
            return self.fail(dialect, status);
        }
        if self.behaviour.malformed {
            return whole(
                StatusCode::OK,
                Bytes::from_static(b"{\"id\": \"x\", \"choices\": [{"),
                JSON,
            );
        }
        if dialect.is_embedding() {
            return self.embed(dialect, body);
        }
        let reply = Reply::to(&self.asked, &self.behaviour, NUMBER.fetch_add(1, Ordering::Relaxed));
        if self.asked.stream || dialect == Dialect::GeminiStream {
            return self.stream(dialect, &reply);
        }
        self.count(reply.used);
        let answer = dialects::whole(dialect, &reply);
        self.written(&answer)
    }

    fn fail(&self, dialect: Dialect, status: u16) -> Response<Body> {
        self.records.count(&self.asked.model, |served| served.failed += 1);
        let told = dialects::fault(dialect, status, self.behaviour.code.as_deref());
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = plain(status, &told);
        if let Some(seconds) = self.behaviour.retry_after {
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        answer
    }

    fn embed(&self, dialect: Dialect, body: &Value) -> Response<Body> {
        self.count(Usage { input: self.asked.input, ..Usage::default() });
        self.written(&dialects::embeddings(dialect, &self.asked, body))
    }

    fn count(&self, used: Usage) {
        self.records.count(&self.asked.model, |served| {
            served.answered += 1;
            served.input += used.input;
            served.output += used.output;
            served.cached += used.cached;
            served.reasoning += used.reasoning;
        });
    }

    fn written(&self, answer: &Value) -> Response<Body> {
        if !self.behaviour.gzip {
            return plain(StatusCode::OK, answer);
        }
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        // Writing to memory does not fail.
        let _ = packed.write_all(answer.to_string().as_bytes());
        let packed = packed.finish().unwrap_or_default();
        let mut answer = whole(StatusCode::OK, packed.into(), JSON);
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        answer
    }

    fn stream(self, dialect: Dialect, reply: &Reply) -> Response<Body> {
        let wants_usage = self.asked.wants_usage || self.behaviour.usage;
        let as_events = dialect != Dialect::GeminiStream || self.query.contains("alt=sse");
        let told = Told {
            pieces: dialects::stream(dialect, reply, wants_usage, self.behaviour.ping, as_events),
            sent: 0,
            dialect,
            used: reply.used,
            call: self,
            is_done: false,
            is_cut: false,
        };
        told.call.records.count(&told.call.asked.model, |served| {
            served.input += told.used.input;
            served.cached += told.used.cached;
        });
        let body = StreamBody::new(stream::unfold(told, Told::next));
        let kind = if as_events { EVENTS } else { JSON };
        let mut answer = Response::new(body.boxed_unsync());
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        answer
    }

    /// Answers other requests than those for answers.
    fn answer_more(&self, method: &Method, headers: &HeaderMap) -> Response<Body> {
        let path = self.path.as_str();
        if *method == Method::GET && path.ends_with("/models") {
            return plain(StatusCode::OK, &dialects::models(path, headers));
        }
        if path.ends_with("/messages/count_tokens") {
            return plain(StatusCode::OK, &json!({"input_tokens": self.asked.input}));
        }
        if path.ends_with("/oauth/token") {
            let token = json!({"access_token": "standin-token", "expires_in": 3600, "token_type": "Bearer"});
            return plain(StatusCode::OK, &token);
        }
        let status = self.behaviour.status.unwrap_or(404);
        let told = dialects::fault(Dialect::OpenAi, status, None);
        plain(StatusCode::from_u16(status).unwrap_or(StatusCode::NOT_FOUND), &told)
    }
}

/// A stream that is being sent.
struct Told {
    pieces: VecDeque<Piece>,
    sent: usize,
    dialect: Dialect,
    used: Usage,
    call: Call,
    is_done: bool,
    is_cut: bool,
}

impl Told {
    async fn next(mut self) -> Option<(io::Result<Frame<Bytes>>, Self)> {
        let behaviour = &self.call.behaviour;
        if behaviour.cut.is_some_and(|cut| self.sent >= cut) {
            return self.cut();
        }
        let Some(piece) = self.pieces.pop_front() else {
            self.is_done = true;
            return None;
        };
        if piece.tokens > 0 && behaviour.endless {
            self.pieces.push_front(piece.clone());
        }
        let wait = if self.sent == 0 && behaviour.head { behaviour.first } else { behaviour.gap };
        if !wait.is_zero() && (self.sent == 0 || piece.tokens > 0) {
            tokio::time::sleep(wait).await;
        }
        self.sent += 1;
        self.call.records.count(&self.call.asked.model, |served| {
            served.output += piece.tokens;
            served.reasoning += piece.thoughts;
        });
        Some((Ok(Frame::data(piece.bytes)), self))
    }

    /// Ends a stream that breaks off.
    fn cut(mut self) -> Option<(io::Result<Frame<Bytes>>, Self)> {
        self.call.behaviour.cut = None;
        self.is_cut = true;
        self.pieces.clear();
        if self.call.behaviour.fault {
            let bytes = dialects::stream_fault(self.dialect);
            return Some((Ok(Frame::data(bytes)), self));
        }
        if self.call.behaviour.half {
            let half = Bytes::from_static(b"data: {\"id\": \"half");
            return Some((Ok(Frame::data(half)), self));
        }
        Some((Err(io::Error::other("cut")), self))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let whole = self.is_done && !self.is_cut;
        self.call.records.count(&self.call.asked.model, |served| {
            if whole {
                served.answered += 1;
            } else {
                served.broken += 1;
            }
        });
    }
}

fn broken() -> Response<Body> {
    let body = stream::iter([Err::<Frame<Bytes>, _>(io::Error::other("dropped"))]);
    Response::new(StreamBody::new(body).boxed_unsync())
}

fn plain(status: StatusCode, answer: &Value) -> Response<Body> {
    whole(status, answer.to_string().into(), JSON)
}

fn whole(status: StatusCode, body: Bytes, kind: HeaderValue) -> Response<Body> {
    let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
