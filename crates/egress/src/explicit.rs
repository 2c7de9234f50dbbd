//! The proxy that programs are configured to use. It takes TLS, a credential, and then `CONNECT` or
//! requests with absolute URIs.

use crate::authority::AuthorityError;
use crate::client::{Arrival, Client, Entry, Kind, of_hosts};
use crate::dial::Dial as _;
use crate::intercept::{self, Body, Tasks};
use crate::passage::{Aim, Passage};
use crate::policy::Verdict;
use crate::service::{Blocked, Service};
use crate::tls_records::TlsRecords;
use admission::{Lingering, Permit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use types::parts::hosts::Host;
use zeroize::Zeroizing;

/// The smallest buffer that hyper accepts.
const HEAD_BYTES_MIN: usize = 8 << 10;

struct Proxy {
    service: Arc<Service>,
    client: Arc<Client>,
    /// Shared by everything that the connection turns into.
    permit: Arc<Permit<String>>,
    /// Tunnels such as WebSockets, and the connections of requests that were passed on.
    tasks: Tasks,
}

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 0x16;

/// Serves one connection to the proxy. The URL that programs get begins with `https`. Programs that
/// can only speak to a proxy without TLS are served too, since nobody else can listen on this link.
pub(crate) async fn serve(
    service: Arc<Service>,
    stream: TcpStream,
    address: Ipv4Addr,
    permit: Permit<String>,
) {
    let Some(client) = service.client(address).await else { return };
    let hello = service.settings.limits.hello;
    let mut first = [0];
    let Ok(Ok(1)) = tokio::time::timeout(hello, stream.peek(&mut first)).await else { return };
    // It may ask for any host, so only the end of its instance cuts it.
    let entry = Entry { arrival: Arrival::Proxy, hosts: Vec::new(), kind: Kind::AnyRequests };
    let Some(passing) = client.pass(&client.policy(), entry) else { return };
    let (tasks, _stop) = Tasks::stopped_with_guard();
    let proxy = Proxy { service, client, permit: Arc::new(permit), tasks: tasks.clone() };
    let proxy = Arc::new(proxy);
    let served = async {
        if first != [HANDSHAKE] {
            requests(Arc::clone(&proxy), stream).await;
        } else if let Some(stream) = accept(&proxy.service, stream).await {
            requests(Arc::clone(&proxy), stream).await;
        }
        // Whatever requests have turned into counts as part of the connection, and is cut with it.
        tasks.ended().await;
    };
    tokio::select! {
        biased;
        () = passing.cut() => {}
        () = served => {}
    }
}

/// Returns the TLS configuration. Called for each connection, because certificates are renewed.
fn tls(service: &Service) -> Result<ServerConfig, AuthorityError> {
    let own = Host::Address(IpAddr::V4(service.settings.address));
    let mut tls = service.authority.tls(&own)?.as_ref().clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tls)
}

async fn accept(service: &Service, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let tls = match tls(service) {
        Ok(tls) => TlsAcceptor::from(Arc::new(tls)),
        Err(error) => {
            tracing::error!(%error, "no certificate for the proxy of instances");
            return None;
        }
    };
    let handshake = service.settings.limits.handshake;
    tokio::time::timeout(handshake, tls.accept(stream)).await.ok()?.ok()
}

/// Serves requests. Boxed, because the compiler cannot see that the future is `Send`.
fn requests<S>(proxy: Arc<Proxy>, stream: S) -> BoxFuture<'static, ()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &proxy.service.settings.limits;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes.max(HEAD_BYTES_MIN))
        .max_header_size(limits.head_bytes);
    let linger = proxy.service.intercept.limits.linger.clone();
    let (stream, close) = linger.over_stream(stream);
    let answer = service_fn(move |request: Request<Incoming>| {
        let (proxy, (request, expected)) = (Arc::clone(&proxy), linger.over(request));
        async move { Ok::<_, Infallible>(expected.tell(proxy.answer(request).await)) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), answer).with_upgrades();
    Box::pin(async move {
        let ended = connection.await;
        // Hyper has already answered clients that broke off or sent nonsense.
        if let Err(error) = ended {
            close.after(&error).await;
        }
    })
}

impl Proxy {
    async fn answer(self: &Arc<Self>, request: Request<Lingering<Incoming>>) -> Response<Body> {
        if !self.knows(&request) {
            let text = "the credential is not the one of this sandbox";
            let mut response = text_response(StatusCode::PROXY_AUTHENTICATION_REQUIRED, text);
            let challenge = HeaderValue::from_static("Basic realm=\"sandbox\"");
            response.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
            return response;
        }
        if request.method() == Method::CONNECT {
            return self.connect(request).await;
        }
        if request.uri().scheme() == Some(&Scheme::HTTP) {
            return self.forward(request).await;
        }
        intercept::bad_request("this is a proxy, which takes CONNECT and requests for http:// URIs")
    }

    fn knows(&self, request: &Request<Lingering<Incoming>>) -> bool {
        let mut values = request.headers().get_all(PROXY_AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, encoded)) = value.to_str().ok().and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        let Ok(decoded) = STANDARD.decode(encoded.trim()).map(Zeroizing::new) else { return false };
        let Some(colon) = decoded.iter().position(|byte| *byte == b':') else { return false };
        let user = std::str::from_utf8(&decoded[..colon]).unwrap_or("");
        scheme.eq_ignore_ascii_case("basic")
            && self.client.has_credential(user, &decoded[colon + 1..])
    }

    async fn connect(self: &Arc<Self>, request: Request<Lingering<Incoming>>) -> Response<Body> {
        let Some((host, port)) = target(&request) else {
            return intercept::bad_request("CONNECT takes a host and a port");
        };
        let names = self.client.known_as(&host, self.service.world.uptime_ms());
        let policy = self.client.policy();
        let server = match of_hosts(&policy, &names) {
            Verdict::Block { rule } => {
                let blocked = Blocked { host: &host, port, rule: &rule };
                self.service.note_blocked(&self.client, &blocked);
                return intercept::blocked(&rule);
            }
            // The connection will be opened, which makes its own connections to the host.
            Verdict::Look => None,
            Verdict::Pass => match self.service.dialer.dial(&self.client, &host, port).await {
                Ok(server) => Some(server),
                Err(error) => {
                    let (response, note) = intercept::unreached(error, &host, port);
                    self.service.note_of(&self.client, note);
                    return response;
                }
            },
        };
        let aim = Aim { arrival: Arrival::Proxy, host, port, names };
        let (service, client) = (Arc::clone(&self.service), Arc::clone(&self.client));
        let permit = Arc::clone(&self.permit);
        self.service.spawn(async move {
            let _permit = permit;
            let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
            let passage = Passage { service, client, aim };
            passage.carry(TlsRecords::new(TokioIo::new(upgraded)), server).await;
        });
        Response::new(body(Bytes::new()))
    }

    async fn forward(&self, mut request: Request<Lingering<Incoming>>) -> Response<Body> {
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let shared = Arc::clone(&self.service.intercept);
        let client = Arc::clone(&self.client);
        intercept::forward(shared, client, request, Scheme::HTTP, &self.tasks).await
    }
}

fn target(request: &Request<Lingering<Incoming>>) -> Option<(Host, u16)> {
    let authority = request.uri().authority()?;
    if authority.as_str().contains('@') {
        return None;
    }
    let port = authority.port_u16().filter(|port| *port != 0)?;
    Some((Host::parse(authority.host())?, port))
}

fn body(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn text_response(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(body(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
