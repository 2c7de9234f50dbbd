//! A gateway behind a real server, one workspace, and clients.

use crate::machine::LoopbackMachine;
use crate::workload::Workload;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use gateway::{Caller, Gateway, Guard, Initial, Parts, Peer, Refused, Settings, Site};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::Value;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use types::edge::{
    Opens, PreviewAddress, PreviewRoute, Replica, RouteChange, Scale, Serving, Target, TokenRoute,
    WorkloadRoute,
};
use types::ids::{ResourceId, WorkspaceId};
use types::parts::TextMap;
use types::{KindName, Timestamp, World};

pub const KEY: &str = "key-of-acme";
/// May use the agents of `acme`, and nothing else.
pub const AGENTS_KEY: &str = "key-of-agents";

/// Knows one key of one workspace, until it is revoked.
#[derive(Default)]
struct OneKey {
    revoked: AtomicBool,
    changes: watch::Sender<()>,
}

impl Guard for OneKey {
    fn admit<'a>(
        &'a self,
        token: &'a str,
        workspace: &'a str,
        kind: KindName,
    ) -> BoxFuture<'a, Result<Caller, Refused>> {
        Box::pin(async move {
            match (token, workspace) {
                (KEY, _) if self.revoked.load(Ordering::Relaxed) => Err(Refused::Unknown),
                (AGENTS_KEY, _) if kind != KindName::Agent => {
                    Err(Refused::Forbidden { why: "for agents only".into() })
                }
                (KEY, "acme" | "acme-b") | (AGENTS_KEY, "acme") => Ok(Caller {
                    holder: "key_1".into(),
                    subject_id: "usr_1".into(),
                    subject_type: "user",
                    auth_method: "api_key",
                    models: None,
                }),
                (KEY | AGENTS_KEY, _) => {
                    Err(Refused::Forbidden { why: "not a member of this workspace".into() })
                }
                ("old", _) => Err(Refused::Expired),
                ("away", _) => Err(Refused::Away),
                ("eager", _) => Err(Refused::TooMany { retry_after_s: 7 }),
                _ => Err(Refused::Unknown),
            }
        })
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

pub struct Stage {
    pub gateway: Gateway,
    pub machine: Arc<LoopbackMachine>,
    /// Where the management interface would be.
    pub address: SocketAddr,
    /// Where only content is served.
    pub content: SocketAddr,
    pub clock: Arc<AtomicI64>,
    guard: Arc<OneKey>,
}

/// No standby unless the test is about it.
pub fn settings() -> Settings {
    Settings {
        domains: vec!["holm.test".into()],
        content_url: "http://10.0.0.7:8701".into(),
        standby_delay: None,
        launch_grace: Duration::ZERO,
        ..Settings::default()
    }
}

impl Stage {
    pub async fn start(settings: Settings) -> Self {
        let clock = Arc::new(AtomicI64::new(1_000_000));
        let time = Arc::clone(&clock);
        let world = World::new(
            move || Timestamp::from_ms(time.load(Ordering::Relaxed)),
            |bytes| bytes.fill(7),
        );
        let machine = Arc::new(LoopbackMachine::default());
        let guard = Arc::new(OneKey::default());
        let gateway =
            Gateway::new(Parts { settings, guard: guard.clone(), machine: machine.clone(), world });
        let address = listen(gateway.clone(), Site::Management).await;
        let content = listen(gateway.clone(), Site::Content).await;
        Self { gateway, machine, address, content, clock, guard }
    }

    /// Revokes the key of `acme`.
    pub fn revoke(&self) {
        self.guard.revoked.store(true, Ordering::Relaxed);
        self.guard.changes.send_replace(());
    }

    /// Makes a sandbox of the workspace `acme` with a running instance of the same name.
    pub async fn sandbox(&self, name: &str, ports: &[u16]) -> Arc<Workload> {
        let workload = Workload::start(&self.machine, name, ports).await;
        self.route("acme", name, by(name));
        self.gateway.standby().track(name, Initial::Awake);
        workload
    }

    pub fn route(&self, workspace: &str, name: &str, serving: Serving) {
        let id = ResourceId::known(format!("{workspace}/{name}"));
        let of = (WorkspaceId::known(workspace), workspace.to_owned());
        self.gateway.routes().apply(RouteChange::Workload(WorkloadRoute {
            label: Some(types::edge::sandbox_label(name, workspace)),
            serving,
            ..WorkloadRoute::new(KindName::Sandbox, id, of, name)
        }));
    }

    /// Starts an instance of a deployment.
    pub async fn replica(&self, instance: &str) -> Arc<Workload> {
        let workload = Workload::start(&self.machine, instance, &[APP_PORT]).await;
        self.gateway.standby().track(instance, Initial::Awake);
        workload
    }

    pub fn deploy(&self, route: &WorkloadRoute) {
        self.gateway.routes().apply(RouteChange::Workload(route.clone()));
    }

    pub fn preview(&self, preview: PreviewRoute) {
        self.gateway.routes().apply(RouteChange::Preview(preview));
    }

    pub async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        Reply::read(self.begin(request).await).await
    }

    /// Sends a request to the listener for content.
    pub async fn send_content(&self, request: Request<Full<Bytes>>) -> Reply {
        Reply::read(begin(self.content, request).await).await
    }

    /// Returns the answer while its body is still to come.
    pub fn begin<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Response<Incoming>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        begin(self.address, request)
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(get(path)).await
    }
}

async fn begin<B>(address: SocketAddr, request: Request<B>) -> Response<Incoming>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.unwrap()
}

async fn listen(gateway: Gateway, site: Site) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, gateway, site));
    address
}

async fn serve(listener: TcpListener, gateway: Gateway, site: Site) {
    while let Ok((stream, peer)) = listener.accept().await {
        let gateway = gateway.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let gateway = gateway.clone();
            async move {
                request.extensions_mut().insert(Peer { address: peer.ip(), secure: false, site });
                let address = gateway.address_of(&request);
                let admitted = match &address {
                    Some(Ok(address)) => gateway.admits(&request, address).await,
                    _ => true,
                };
                if site == Site::Management && (address.is_none() || !admitted) {
                    return Ok::<_, Infallible>(not_taken());
                }
                Ok(gateway.serve(request, address).await)
            }
        });
        tokio::spawn(async move {
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
        });
    }
}

/// Stands for an answer of the management side.
fn not_taken() -> Response<gateway::Body> {
    let mut response = Response::new(gateway::Body::default());
    *response.status_mut() = StatusCode::IM_A_TEAPOT;
    response
}

pub fn by(instance: &str) -> Serving {
    Serving::by("here", instance)
}

/// The port on which programs of deployments listen.
pub const APP_PORT: u16 = 1338;

/// Returns a private deployment of the workspace `acme` without replicas.
pub fn deployment(kind: KindName, name: &str) -> WorkloadRoute {
    let id = ResourceId::known(format!("res_{name}"));
    let workspace = (WorkspaceId::known("acme"), "acme".to_owned());
    WorkloadRoute {
        label: Some(format!("{name}-acme")),
        port: Some(APP_PORT),
        scale: Scale { max: 4, concurrency: 10 },
        serving: Serving::To(vec![to("r1", 100, &[])]),
        ..WorkloadRoute::new(kind, id, workspace, name)
    }
}

pub fn to(revision: &str, weight: u32, replicas: &[&str]) -> Target {
    let replica = |name: &&str| Replica { machine: "here".into(), instance: (*name).to_owned() };
    Target { revision: revision.into(), weight, replicas: replicas.iter().map(replica).collect() }
}

/// Returns a request by path with the valid key.
pub fn get(path: &str) -> Request<Full<Bytes>> {
    request("GET", "127.0.0.1", path, &[("authorization", "Bearer key-of-acme")])
}

pub fn request(
    method: &str,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Request<Full<Bytes>> {
    let mut builder = Request::builder().method(method).uri(path).header("host", host);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::default()).unwrap()
}

/// Returns a private preview of `box` with the token `secret`, under the label `p`.
pub fn private(port: u16) -> PreviewRoute {
    PreviewRoute {
        id: ResourceId::known(format!("preview-{port}")),
        workspace: WorkspaceId::known("acme"),
        name: "p".into(),
        workload: ResourceId::known("acme/box"),
        at: PreviewAddress::Label("p".into()),
        port,
        opens: Opens::ToTokens(vec![token("secret", None)]),
        request_headers: TextMap::new(),
        response_headers: TextMap::new(),
        expires_at: None,
    }
}

pub fn token(text: &str, expires_at: Option<Timestamp>) -> TokenRoute {
    use sha2::Digest;
    TokenRoute { digest: sha2::Sha256::digest(text).into(), expires_at }
}

pub struct Reply {
    pub status: StatusCode,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub async fn read(response: Response<Incoming>) -> Self {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Self { status: head.status, headers: head.headers, body }
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Checks that this is an error of the edge, complete in all parts.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        assert_eq!(self.headers["x-blaxel-source"], "platform");
        assert_eq!(self.headers["content-type"], "application/json");
        let error = serde_json::from_slice::<Value>(&self.body).unwrap()["error"].take();
        let mut members: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        members.sort_unstable();
        let all = [
            "action",
            "code",
            "do_not",
            "docs_url",
            "message",
            "origin",
            "retryable",
            "status",
            "timestamp",
        ];
        assert_eq!(members, all);
        assert_eq!(error["code"], code);
        assert_eq!(error["status"], status);
        assert_eq!(error["retryable"].as_bool(), Some(self.headers.contains_key("retry-after")));
        error
    }
}
