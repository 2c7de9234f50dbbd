//! Hosts of a small internet on loopback, and a program behind our way out.

use super::super::*;
use crate::authority::Authority;
use crate::dial::{Dial, DialError, HostStream};
use crate::events::Events;
use crate::fixture;
use crate::policy::Policy;
use crate::upstream_tls::UpstreamTls;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::{http1, http2};
use hyper::ext::Protocol;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::collections::HashMap;
use std::time::SystemTime;
use tokio::io::{DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use types::egress::{EgressEvent, EgressRules};
use types::instance::InstanceName;
use types::{Timestamp, World};

pub(super) struct Lab {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Arc<Client>,
    places: Arc<Places>,
    /// The authority of the internet, which our way out trusts.
    world_authority: Arc<Authority>,
    folders: [tempfile::TempDir; 2],
}

#[derive(Default)]
struct Places {
    ports: Mutex<HashMap<Host, u16>>,
    dialed: Mutex<Vec<Host>>,
}

impl Dial for Places {
    fn dial<'a>(
        &'a self,
        _: &'a Client,
        host: &'a Host,
        _: u16,
    ) -> BoxFuture<'a, Result<HostStream, DialError>> {
        Box::pin(async move {
            if *host == name("inside") {
                return Err(DialError::Inside(host.clone()));
            }
            let port = self.ports.lock().get(host).copied();
            let port = port.ok_or_else(|| DialError::NoAddress(host.clone()))?;
            self.dialed.lock().push(host.clone());
            let dialed = TcpStream::connect(("127.0.0.1", port)).await;
            let dialed = dialed.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
            dialed
                .map(HostStream::Plain)
                .map_err(|error| DialError::Failed { host: host.clone(), error })
        })
    }
}

pub(super) fn name(text: &str) -> Host {
    Host::parse(text).unwrap()
}

/// A world with the real time, which TLS needs.
fn world() -> World {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    World::new(move || Timestamp::from_ms(now().try_into().unwrap()), fixture::fill)
}

impl Lab {
    pub(super) fn new(rules: EgressRules) -> Self {
        Self::with_limits(rules, Limits::default())
    }

    pub(super) fn with_limits(rules: EgressRules, limits: Limits) -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let authority = |at: usize| Authority::open(folders[at].path(), world(), 8).unwrap();
        let (own, world_authority) = (Arc::new(authority(0)), Arc::new(authority(1)));
        let mut roots = RootCertStore::empty();
        roots.add(world_authority.der()).unwrap();
        let places = Arc::new(Places::default());
        let dial: Arc<dyn Dial> = Arc::clone(&places) as Arc<dyn Dial>;
        let events = Arc::new(Events::new(world(), crate::events::EventLimits::default()));
        let upstream_tls = UpstreamTls::new(roots).unwrap();
        let shared = Shared::new(own, dial, upstream_tls, world(), events, limits);
        let instance = InstanceName::new("sbx-test").unwrap();
        let client = Arc::new(Client::new(instance, Policy::compile(rules)));
        Self { shared: Arc::new(shared), client, places, world_authority, folders }
    }

    /// Starts a host with TLS that supports the protocols in `alpn`.
    pub(super) async fn site(&self, host: &str, alpn: &[&str]) {
        self.site_with(host, alpn, false).await;
    }

    /// Starts a host with TLS that may take WebSockets over HTTP/2.
    pub(super) async fn site_with(&self, host: &str, alpn: &[&str], takes_sockets: bool) {
        self.listen_tls(host, self.acceptor(host, alpn), takes_sockets).await;
    }

    /// Starts a host that presents the certificate of another.
    pub(super) async fn site_named(&self, host: &str, shown: &str, alpn: &[&str]) {
        self.listen_tls(host, self.acceptor(shown, alpn), false).await;
    }

    async fn listen_tls(&self, host: &str, acceptor: TlsAcceptor, takes_sockets: bool) {
        self.listen(host, move |stream| {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, takes_sockets).await;
                }
            });
        })
        .await;
    }

    /// Returns what takes TLS connections with the certificate of a host.
    pub(super) fn acceptor(&self, shown: &str, alpn: &[&str]) -> TlsAcceptor {
        let tls = self.world_authority.tls(&name(shown)).unwrap();
        let mut tls = ServerConfig::clone(&tls);
        tls.alpn_protocols = alpn.iter().map(|alpn| alpn.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(tls))
    }

    pub(super) async fn plain_site(&self, host: &str) {
        self.plain_site_with(host, false).await;
    }

    pub(super) async fn plain_site_with(&self, host: &str, takes_sockets: bool) {
        self.listen(host, move |stream| drop(tokio::spawn(answer(stream, takes_sockets)))).await;
    }

    pub(super) async fn listen(&self, host: &str, serve: impl Fn(TcpStream) + Send + 'static) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        self.places.ports.lock().insert(name(host), port);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream);
            }
        });
    }

    /// Returns the hosts that were dialed since the last call.
    pub(super) fn dialed(&self) -> Vec<String> {
        let dialed = std::mem::take(&mut *self.places.dialed.lock());
        dialed.iter().map(Host::to_string).collect()
    }

    /// Opens a connection of the program that leads to `host`.
    pub(super) fn open(&self, host: &str, is_tls: bool) -> DuplexStream {
        let (program, ours) = duplex(64 << 10);
        let names = self.client.known_as(&name(host), self.shared.world.uptime_ms());
        let to = To { host: name(host), names, port: if is_tls { 443 } else { 80 }, is_tls };
        tokio::spawn(serve(Arc::clone(&self.shared), Arc::clone(&self.client), ours, to));
        program
    }

    pub(super) async fn open_tls(
        &self,
        host: &str,
        alpn: &str,
    ) -> io::Result<tokio_rustls::client::TlsStream<DuplexStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.shared.authority.der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let server = ServerName::try_from(host.to_owned()).unwrap();
        TlsConnector::from(Arc::new(tls)).connect(server, self.open(host, true)).await
    }

    pub(super) async fn browse(&self, host: &str, alpn: &str) -> Program {
        let stream = TokioIo::new(self.open_tls(host, alpn).await.unwrap());
        match alpn {
            "h2" => Program::two(stream).await,
            _ => Program::one(stream).await,
        }
    }

    pub(super) async fn browse_plain(&self, host: &str) -> Program {
        Program::one(TokioIo::new(self.open(host, false))).await
    }

    /// Opens a connection to the explicit proxy.
    pub(super) fn proxy(&self) -> DuplexStream {
        let (program, ours) = duplex(64 << 10);
        let (shared, client) = (Arc::clone(&self.shared), Arc::clone(&self.client));
        tokio::spawn(async move {
            let (tasks, _stop) = Tasks::stopped_with_guard();
            let of_requests = tasks.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let (shared, client) = (Arc::clone(&shared), Arc::clone(&client));
                let (tasks, scheme) = (of_requests.clone(), request.uri().scheme().cloned());
                let scheme = scheme.unwrap_or(Scheme::HTTP);
                let (request, expected) = shared.limits.linger.over(request);
                async move {
                    let answer = forward(shared, client, request, scheme, &tasks).await;
                    Ok::<_, Infallible>(expected.tell(answer))
                }
            });
            let builder = auto::Builder::new(TokioExecutor::new());
            builder.serve_connection_with_upgrades(TokioIo::new(ours), service).await.ok();
            tasks.ended().await;
        });
        program
    }

    pub(super) async fn event(&self) -> EgressEvent {
        self.shared.events.next().await.swap_remove(0)
    }

    pub(super) fn folders(&self) -> &[tempfile::TempDir; 2] {
        &self.folders
    }
}

/// A program in the instance.
pub(super) enum Program {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Program {
    pub(super) async fn one<S>(stream: TokioIo<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        Self::One(sender)
    }

    pub(super) async fn two<S>(stream: TokioIo<S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self::Two(sender)
    }

    pub(super) async fn try_ask(
        &mut self,
        request: Request<Body>,
    ) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Self::Two(sender) => sender.send_request(request).await,
        }
    }

    pub(super) async fn ask(&mut self, request: Request<Body>) -> Response<Incoming> {
        self.try_ask(request).await.unwrap()
    }

    /// Returns the status, the headers and the whole body.
    pub(super) async fn fetch(&mut self, request: Request<Body>) -> Fetched {
        Fetched::of(self.ask(request).await).await
    }
}

pub(super) struct Fetched {
    pub(super) status: u16,
    pub(super) headers: http::HeaderMap,
    pub(super) text: String,
}

impl Fetched {
    pub(super) async fn of(answer: Response<Incoming>) -> Self {
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        Self { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    pub(super) fn error(&self) -> &str {
        self.headers.get("proxy-error").map_or("", |value| value.to_str().unwrap())
    }
}

/// Builds a request for a connection of either HTTP version.
pub(super) fn request(method: &str, uri: &str, body: impl Into<Vec<u8>>) -> Request<Body> {
    let body: Vec<u8> = body.into();
    let uri: http::Uri = uri.parse().unwrap();
    let request = Request::builder().method(method);
    let request = match uri.authority() {
        Some(authority) => request.header("host", authority.as_str()),
        None => request,
    };
    request.uri(uri).body(body::full(body)).unwrap()
}

/// Builds the same request in the form that HTTP/1.1 uses on a connection to the host itself.
pub(super) fn request_one(method: &str, uri: &str, body: impl Into<Vec<u8>>) -> Request<Body> {
    let mut request = request(method, uri, body);
    *request.uri_mut() = request.uri().path_and_query().unwrap().clone().into();
    request
}

async fn answer<S>(stream: S, takes_sockets: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    if takes_sockets {
        builder.http2().enable_connect_protocol();
    }
    let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service_fn(page));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a host of the test");
    }
}

async fn page(mut request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let (path, version) = (request.uri().path().to_owned(), request.version());
    Ok(match path.as_str() {
        _ if request.method() == "HEAD" => {
            Response::builder().header("content-length", 7).body(body::empty())?
        }
        "/hang" => std::future::pending().await,
        "/break" => return Err("on purpose".into()),
        "/empty" => Response::builder().status(204).body(body::empty())?,
        path if path == "/ws" || path.starts_with("/ws/") => web_socket(&mut request),
        "/refuse" => Response::builder().status(403).body(body::full("no"))?,
        "/big" => {
            let piece = || Ok(Frame::data(Bytes::from(vec![7; 64 << 10])));
            let pieces = futures_util::stream::iter((0..512).map(move |_| piece()));
            Response::new(StreamBody::new(pieces).boxed_unsync())
        }
        "/grpc" => {
            let te = request.headers().get("te").is_some_and(|te| te == "trailers");
            let said = request.into_body().collect().await?.to_bytes();
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", if te { "0" } else { "13" }.parse()?);
            let body = Full::new(said).map_err(|never| match never {});
            Response::new(body.with_trailers(async move { Some(Ok(trailers)) }).boxed_unsync())
        }
        "/echo-stream" => Response::new(request.into_body().map_err(Into::into).boxed_unsync()),
        _ => {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
            };
            let mut headers: Vec<String> = parts.headers.iter().map(header).collect();
            headers.sort();
            let uri = parts.uri.path_and_query().unwrap();
            let authority = parts.uri.authority().map_or("-", |authority| authority.as_str());
            let body = if body.len() > 4096 {
                format!("{} bytes", body.len())
            } else {
                String::from_utf8_lossy(&body).into_owned()
            };
            let told = format!(
                "{version:?} {} {uri} {authority}\n{}\n\n{body}",
                parts.method,
                headers.join("\n")
            );
            let mut response = Response::new(body::full(told));
            response.headers_mut().insert("alt-svc", "h3=\":443\"".parse()?);
            response
        }
    })
}

type BoxError = super::super::body::BoxError;

fn web_socket(request: &mut Request<Incoming>) -> Response<Body> {
    use futures_util::{SinkExt as _, StreamExt as _};
    let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap());
    let accept = header("sec-websocket-key").map(|key| derive_accept_key(key.as_bytes()));
    let protocol = request.extensions().get::<Protocol>().map(Protocol::as_str);
    let protocol = protocol.or(header("upgrade")).unwrap();
    let asked = format!("{} {:?} {protocol}", request.method(), request.version());
    let response = Response::builder()
        .header("x-asked", asked)
        .header("x-path", request.uri().path_and_query().unwrap().as_str())
        .header("x-authorization", header("authorization").unwrap_or("-"));
    let response = match header("sec-websocket-protocol") {
        Some(protocol) => response.header("sec-websocket-protocol", protocol),
        None => response,
    };
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let stream = TokioIo::new(upgraded.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() && socket.send(message).await.is_err() {
                break;
            }
        }
    });
    let response = match accept {
        Some(accept) => response
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-accept", accept),
        None => response,
    };
    response.body(body::empty()).unwrap()
}
