//! A gateway behind a real server, one workspace with models, and clients.

use crate::books::Memory;
use crate::standin::Standin;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use gateway::{
    Caller, Gateway, Guard, Machine, MachineError, ModelParts, ModelSettings, Parts, Refused,
    Settings,
};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use models::ledger::{Ledger, Settings as LedgerSettings};
use models::prices::PriceTable;
use serde_json::Value;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use types::edge::RouteChange;
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::model::{ModelRouting, ModelType};
use types::kinds::policy::{Granularity, LimitPer};
use types::model_books::UsageSum;
use types::models::{LimitMeasure, ModelLimit, ModelProvider, ModelRight, ModelRoute};
use types::parts::{Sensitive, TextMap};
use types::{KindName, Timestamp, World};

pub const KEY: &str = "key-of-acme";
/// Valid for the model `narrow` only.
pub const NARROW_KEY: &str = "key-of-narrow";
pub const CHAT: &str = "/v1/chat/completions";
pub const HI: &str = r#"{"model":"any","messages":[{"role":"user","content":"hi"}]}"#;
pub const HI_STREAM: &str =
    r#"{"model":"any","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

#[derive(Default)]
struct Keys {
    revoked: AtomicBool,
    changes: watch::Sender<()>,
}

impl Guard for Keys {
    fn admit<'a>(
        &'a self,
        token: &'a str,
        workspace: &'a str,
        kind: KindName,
    ) -> BoxFuture<'a, Result<Caller, Refused>> {
        let revoked = self.revoked.load(Ordering::Relaxed);
        let right = ModelRight { models: vec!["narrow".into()], limits: Vec::new() };
        let models = match (token, workspace, kind) {
            (KEY, _, _) if revoked => Err(Refused::Unknown),
            (KEY, "acme", KindName::Model) => Ok(None),
            (NARROW_KEY, "acme", KindName::Model) => Ok(Some(Arc::new(right))),
            (KEY | NARROW_KEY, ..) => Err(Refused::Forbidden { why: "not yours".into() }),
            _ => Err(Refused::Unknown),
        };
        let caller = models.map(|models| Caller {
            holder: "key_1".into(),
            subject_id: "usr_1".into(),
            subject_type: "user",
            auth_method: "apikey",
            models,
        });
        Box::pin(std::future::ready(caller))
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

/// Models need no machine.
struct NoMachine;

impl Machine for NoMachine {
    fn name(&self) -> &str {
        "none"
    }
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<TcpStream>> {
        Box::pin(std::future::ready(Err(io::Error::from(io::ErrorKind::NotFound))))
    }
    fn pause<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn resume<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), MachineError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    fn give_program<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

pub struct Stage {
    pub gateway: Gateway,
    pub address: SocketAddr,
    pub books: Arc<Memory>,
    pub ledger: Ledger,
    guard: Arc<Keys>,
    _folder: TempDir,
    _serving: AbortOnDropHandle<()>,
}

pub fn settings() -> ModelSettings {
    let settings = ModelSettings {
        retry_pause: Duration::from_millis(1),
        unpriced: true,
        ..ModelSettings::default()
    };
    settings.with_inside(&["127.0.0.1".into(), "localhost".into()]).unwrap()
}

impl Stage {
    pub async fn start() -> Self {
        Self::with(settings()).await
    }

    pub async fn with(models: ModelSettings) -> Self {
        let begun = std::time::Instant::now();
        let world = World::new(|| Timestamp::from_ms(1_800_000_030_000), |bytes| bytes.fill(7))
            .with_uptime(move || i64::try_from(begun.elapsed().as_millis()).unwrap());
        let guard = Arc::new(Keys::default());
        let settings = Settings { models, standby_delay: None, ..Settings::default() };
        let gateway = Gateway::new(Parts {
            settings,
            guard: guard.clone(),
            machine: Arc::new(NoMachine),
            world: world.clone(),
        });
        let folder = tempfile::tempdir().unwrap();
        let books = Arc::new(Memory::default());
        let ledger = LedgerSettings {
            keep_up_every: Duration::from_millis(10),
            ..LedgerSettings::new(folder.path().join("ledger"), "boot".into())
        };
        let ledger = Ledger::open(ledger, books.clone(), world).await.unwrap();
        let prices = Arc::new(PriceTable::builtin().clone());
        let installation = "stage".to_owned();
        gateway.serve_models(ModelParts { ledger: ledger.clone(), prices, installation });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = AbortOnDropHandle::new(tokio::spawn(serve(listener, gateway.clone())));
        Self { gateway, address, books, ledger, guard, _folder: folder, _serving: serving }
    }

    pub fn revoke(&self) {
        self.guard.revoked.store(true, Ordering::Relaxed);
        self.guard.changes.send_replace(());
    }

    pub fn route(&self, route: ModelRoute) {
        self.gateway.routes().apply(RouteChange::Model(Box::new(route)));
    }

    /// Adds an OpenAI model that is answered by a stand-in.
    pub fn model(&self, name: &str, standin: &Standin) {
        self.route(model(name, ModelType::Openai, Some(&standin.url)));
    }

    pub async fn ask(&self, path: &str, body: &str) -> Answered {
        self.ask_with(path, &[("authorization", &format!("Bearer {KEY}"))], body).await
    }

    pub async fn chat(&self, name: &str, body: &str) -> Answered {
        self.ask(&format!("/acme/models/{name}{CHAT}"), body).await
    }

    pub async fn ask_with(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
        let response = self.open(path, headers, body).await;
        let (head, body) = response.into_parts();
        let (mut pieces, mut broken) = (Vec::new(), false);
        let mut body = body;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => pieces.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        let text = String::from_utf8_lossy(&pieces).into_owned();
        Answered { status: head.status, headers: head.headers, text, broken }
    }

    /// Asks a model for a stream, and returns the answer as it begins.
    pub async fn open_stream(&self, name: &str) -> Response<Incoming> {
        let bearer = format!("Bearer {KEY}");
        let path = format!("/acme/models/{name}{CHAT}");
        self.open(&path, &[("authorization", &bearer)], HI_STREAM).await
    }

    /// Returns the answer as it begins.
    pub async fn open(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response<Incoming> {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let mut request = Request::builder().method(method).uri(path).header("host", "holm.test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    /// Returns the sum of everything that was counted, once there are at least `calls` calls.
    pub async fn usage(&self, calls: i64) -> UsageSum {
        let counted = async {
            loop {
                self.ledger.flush().await;
                let mut all = UsageSum::default();
                self.books.usage().iter().for_each(|(_, sum)| all.add(sum));
                if all.calls >= calls {
                    return all;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), counted).await.unwrap()
    }
}

#[derive(Debug)]
pub struct Answered {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
    pub broken: bool,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    #[track_caller]
    pub fn is(&self, status: u16, code: &str) {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        assert!(self.text.contains(code), "{self:?}");
    }
}

async fn serve(listener: TcpListener, gateway: Gateway) {
    let mut serving = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).unwrap();
        let gateway = gateway.clone();
        serving.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let gateway = gateway.clone();
                async move {
                    let address = gateway.address_of(&request);
                    Ok::<_, Infallible>(gateway.serve(request, address).await)
                }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

pub fn model(name: &str, kind: ModelType, endpoint: Option<&str>) -> ModelRoute {
    let provider = |endpoint: &str| ModelProvider {
        kind,
        model: Some("gpt-x".into()),
        endpoint_name: None,
        organization: None,
        connection: Some("c".into()),
        config: TextMap::from_iter([("endpoint".to_owned(), endpoint.to_owned())]),
        secrets: Sensitive(TextMap::from_iter([("apiKey".to_owned(), "sk-provider".to_owned())])),
        sandbox: false,
    };
    ModelRoute {
        id: ResourceId::known(format!("res_{name}")),
        workspace: WorkspaceId::known("ws_acme"),
        workspace_name: "acme".into(),
        name: name.into(),
        revision: "1".into(),
        off: None,
        provider: endpoint.map(provider),
        routing: ModelRouting::default(),
        limits: Vec::new(),
        cache: None,
        request_log: None,
        hooks: Vec::new(),
    }
}

pub fn limit(measure: LimitMeasure, amount: i64) -> ModelLimit {
    ModelLimit {
        id: "pol_1".into(),
        name: "policy `tight`".into(),
        measure,
        amount,
        per: LimitPer::Model,
        granularity: Granularity::Hour,
        step: 1,
    }
}
