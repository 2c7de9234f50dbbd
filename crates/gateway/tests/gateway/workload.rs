//! What runs in a sandbox: a server that reports what it was asked.

use crate::machine::LoopbackMachine;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::sync::{RwLock, Semaphore};
use tokio_util::task::TaskTracker;

/// The trailers that `/echo` sends back. Only what is announced is sent.
pub const TRAILERS: &str = "x-sum, x-blaxel-subject-id, x_blaxel_subject_id, x-forwarded-for, \
    x_forwarded_proto, x-forwarded-host, forwarded, x-request-id, x_request_id, x-plan, x_plan";

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// What a test knows about the workload of one instance.
pub struct Workload {
    pub instance: String,
    pub keep_alive: AtomicU64,
    pub health_asked: AtomicUsize,
    /// While this is locked for writing, the health check gets no answer.
    pub health_door: RwLock<()>,
    pub served: AtomicUsize,
    pub served_while_paused: AtomicUsize,
    /// Requests of `/gate` wait for this.
    pub gate: Semaphore,
    /// Requests that are being served.
    pub busy: TaskTracker,
    machine: Arc<LoopbackMachine>,
}

impl Workload {
    pub async fn start(machine: &Arc<LoopbackMachine>, instance: &str, ports: &[u16]) -> Arc<Self> {
        let workload = Arc::new(Self {
            instance: instance.to_owned(),
            keep_alive: AtomicU64::new(0),
            health_asked: AtomicUsize::new(0),
            health_door: RwLock::new(()),
            served: AtomicUsize::new(0),
            served_while_paused: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            busy: TaskTracker::new(),
            machine: Arc::clone(machine),
        });
        for port in ports {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            machine.listen(instance, *port, listener.local_addr().unwrap());
            tokio::spawn(Arc::clone(&workload).serve(listener, *port));
        }
        workload
    }

    async fn serve(self: Arc<Self>, listener: TcpListener, port: u16) {
        while let Ok((stream, _)) = listener.accept().await {
            let workload = Arc::clone(&self);
            let service = service_fn(move |request| {
                let workload = Arc::clone(&workload);
                async move { Ok::<_, Infallible>(workload.answer(request, port).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    }

    async fn answer(&self, request: Request<Incoming>, port: u16) -> Response<Body> {
        let _busy = self.busy.token();
        let paused_before = self.machine.is_paused(&self.instance);
        let response = self.respond(request, port).await;
        if paused_before || self.machine.is_paused(&self.instance) {
            self.served_while_paused.fetch_add(1, Ordering::Relaxed);
        }
        response
    }

    async fn respond(&self, request: Request<Incoming>, port: u16) -> Response<Body> {
        match request.uri().path() {
            "/health" => {
                self.health_asked.fetch_add(1, Ordering::Relaxed);
                let _open = self.health_door.read().await;
                text(
                    json!({"keepAliveProcesses": self.keep_alive.load(Ordering::Relaxed)})
                        .to_string(),
                )
            }
            "/echo" => {
                let mut response = Response::new(request.into_body().boxed_unsync());
                response.headers_mut().insert("trailer", HeaderValue::from_static(TRAILERS));
                response
            }
            "/gate" => {
                self.gate.acquire().await.unwrap().forget();
                text("open")
            }
            "/upgrade" => {
                let mut response = text("started");
                let wanted = HeaderValue::from_static(types::guest::WANTS_PROGRAM);
                response.headers_mut().insert(types::guest::WANTS_HEADER, wanted);
                response
            }
            "/endless" => Response::new(Endless.boxed_unsync()),
            "/nothing" => {
                let mut response =
                    Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
            "/mcp" if request.headers().contains_key("content-type") => self.mcp(request).await,
            _ => self.tell(&request, port),
        }
    }

    /// Answers as an MCP server whose one tool is named after its instance.
    async fn mcp(&self, request: Request<Incoming>) -> Response<Body> {
        self.served.fetch_add(1, Ordering::Relaxed);
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let message: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let tools = json!([{"name": self.instance}]);
        let result = match message["method"].as_str() {
            Some("tools/list") => json!({"tools": tools}),
            _ => json!({}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let streams = head.headers.get("accept").is_some_and(|accept| accept != "application/json");
        let (kind, answer) = match streams {
            true => ("text/event-stream", format!("id: 1\ndata:\n\nid: 2\ndata: {answer}\n\n")),
            false => ("application/json", answer),
        };
        let mut response = text(answer);
        response.headers_mut().insert("content-type", HeaderValue::from_static(kind));
        if let Some(session) = head.headers.get("mcp-session-id") {
            response.headers_mut().insert("mcp-session-id", session.clone());
        }
        if message["method"] == "initialize" {
            response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s-1"));
        }
        response
    }

    fn tell(&self, request: &Request<Incoming>, port: u16) -> Response<Body> {
        self.served.fetch_add(1, Ordering::Relaxed);
        let headers: BTreeMap<_, _> = request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let told = json!({"port": port, "method": request.method().as_str(), "uri": request.uri().to_string(),
                          "headers": headers, "instance": self.instance});
        let mut response = text(told.to_string());
        response.headers_mut().insert("x-blaxel-source", HeaderValue::from_static("platform"));
        response.headers_mut().insert("keep-alive", HeaderValue::from_static("timeout=5"));
        for wanted in request.headers().get_all("x-answer") {
            let (name, value) = wanted.to_str().unwrap().split_once(": ").unwrap();
            response
                .headers_mut()
                .append(HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        response
    }
}

fn text(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(Full::new(text.into()).map_err(|never| match never {}).boxed_unsync())
}

/// A body that never ends and is produced as fast as it is read.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, hyper::Error>>> {
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from_static(
            &[b'.'; 16 << 10],
        )))))
    }
}
