//! The proxy that programs are told of: TLS to it, a credential, and then `CONNECT` or requests
//! with a whole URI.

use crate::client::{Client, Door, Ended, Entry, Kind, Passing, of_hosts};
use crate::dial::{Dial as _, DialError, Wait};
use crate::host::Host;
use crate::intercept::{self, Body, BoxError};
use crate::passage::{Aim, Passage};
use crate::policy::Verdict;
use crate::service::{Blocked, Service};
use admission::Permit;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

/// hyper asks for more.
const HEAD_BYTES_MIN: usize = 8 << 10;
const PROXY_ERROR: &str = "proxy-error";

struct Proxy {
    service: Arc<Service>,
    client: Arc<Client>,
    /// Held by all that the connection turns into.
    permit: Arc<Permit<Ipv4Addr>>,
    /// The request that is under way, and ends the connection if it may not go on.
    request: Mutex<Option<Passing>>,
    cut: CancellationToken,
}

/// The first byte of TLS.
const HANDSHAKE: u8 = 0x16;

/// One connection to the proxy. The address that programs are told begins with `https`; those that
/// know proxies without TLS alone are served as well, since nobody else is on this wire.
pub(crate) async fn serve(
    service: Arc<Service>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    address: Ipv4Addr,
    permit: Permit<Ipv4Addr>,
) {
    let Some(client) = service.client(address).await else { return };
    let proxy = Proxy {
        service: Arc::clone(&service),
        client,
        permit: Arc::new(permit),
        request: Mutex::default(),
        cut: CancellationToken::new(),
    };
    let (limits, mut first) = (&service.settings.limits, [0]);
    let begun = tokio::time::timeout(limits.hello, stream.peek(&mut first));
    let Ok(Ok(1)) = begun.await else { return };
    if first != [HANDSHAKE] {
        return proxy.answer_on(stream).await;
    }
    let handshake = tokio::time::timeout(limits.handshake, acceptor.accept(stream));
    if let Ok(Ok(stream)) = handshake.await {
        proxy.answer_on(stream).await;
    }
}

impl Proxy {
    /// In a box of its own: the compiler cannot tell otherwise that it may change threads.
    fn answer_on<S>(self, stream: S) -> Wait<'static, ()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = &self.service.settings.limits;
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(limits.hello)
            .max_buf_size(limits.head_bytes.max(HEAD_BYTES_MIN))
            .max_header_size(limits.head_bytes);
        let proxy = Arc::new(self);
        Box::pin(async move {
            let cut = proxy.cut.clone();
            let answer = service_fn(move |request| {
                let proxy = Arc::clone(&proxy);
                async move { Ok::<_, Infallible>(proxy.answer(request).await.map(sent)) }
            });
            let connection = builder.serve_connection(TokioIo::new(stream), answer);
            // Whoever breaks off, or sends nonsense, has been answered by hyper.
            drop(cut.run_until_cancelled(connection.with_upgrades()).await);
        })
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
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
        let text = "this is a proxy: it takes CONNECT, and requests for http:// URIs";
        text_response(StatusCode::BAD_REQUEST, text)
    }

    fn knows(&self, request: &Request<Incoming>) -> bool {
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

    async fn connect(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let Some((host, port)) = target(&request) else {
            let text = "CONNECT takes a host and a port";
            return text_response(StatusCode::BAD_REQUEST, text);
        };
        let names = self.names(&host);
        let policy = self.client.policy();
        let server = match of_hosts(&policy, &names) {
            Verdict::Block { rule } => return self.blocked(&host, port, &rule),
            // Whoever opens it connects by itself.
            Verdict::Look => None,
            Verdict::Pass => match self.service.dialer.dial(&self.client, &host, port).await {
                Ok(server) => Some(server),
                Err(error) => return self.failed(&host, port, &error),
            },
        };
        let aim = Aim { door: Door::Proxy, host, port, names };
        let (service, client) = (Arc::clone(&self.service), Arc::clone(&self.client));
        let permit = Arc::clone(&self.permit);
        self.service.spawn(async move {
            let _permit = permit;
            let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
            let passage = Passage { service, client, aim };
            passage.carry(TokioIo::new(upgraded), server).await;
        });
        Response::new(body(Bytes::new()))
    }

    /// What decides about a host: of an address that was given out for names, the names.
    fn names(&self, host: &Host) -> Vec<Host> {
        let given = match host {
            Host::Address(IpAddr::V4(address)) => {
                self.client.names_of(*address, self.service.world.uptime_ms())
            }
            _ => Vec::new(),
        };
        if given.is_empty() { vec![host.clone()] } else { given }
    }

    async fn forward(self: &Arc<Self>, mut request: Request<Incoming>) -> Response<Body> {
        let authority = request.uri().authority();
        let host = authority
            .filter(|authority| !authority.as_str().contains('@'))
            .and_then(|authority| Host::parse(authority.host()));
        let Some(host) = host else {
            return text_response(StatusCode::BAD_REQUEST, "the URI names no host");
        };
        let entry = Entry { door: Door::Proxy, hosts: vec![host], kind: Kind::AnyRequests };
        let Some(passing) = self.client.pass(&self.client.policy(), entry) else {
            return text_response(StatusCode::FORBIDDEN, "the rules have just changed");
        };
        self.watch(passing);
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let shared = Arc::clone(&self.service.intercept);
        intercept::forward(shared, Arc::clone(&self.client), request, Scheme::HTTP).await
    }

    /// Ends the connection if the request may not go on. It is the only one under way: HTTP/1.1 has
    /// them one after the other.
    fn watch(&self, passing: Passing) {
        let (cut, ended) = (self.cut.clone(), passing.ended());
        *self.request.lock() = Some(passing);
        self.service.spawn(async move {
            if ended.await == Ended::Cut {
                cut.cancel();
            }
        });
    }

    fn blocked(&self, host: &Host, port: u16, rule: &str) -> Response<Body> {
        self.service.note_blocked(&self.client, &Blocked { host, port, rule });
        intercept::blocked(rule)
    }

    fn failed(&self, host: &Host, port: u16, error: &DialError) -> Response<Body> {
        let text = error.to_string();
        self.service.note_failed(&self.client, host, port, &text);
        let (status, word) = match error {
            DialError::Inside(_) => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
            DialError::NoAddress(_) => (StatusCode::BAD_GATEWAY, "dns_error"),
            DialError::TooSlow { .. } => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
            DialError::Failed { .. } => (StatusCode::BAD_GATEWAY, "connection_refused"),
        };
        error_response(status, word, &text)
    }
}

/// Why a body could not be sent on, as a type of its own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(BoxError);

fn sent(body: Body) -> UnsyncBoxBody<Bytes, Broken> {
    body.map_err(Broken).boxed_unsync()
}

fn target(request: &Request<Incoming>) -> Option<(Host, u16)> {
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

fn error_response(status: StatusCode, word: &'static str, text: &str) -> Response<Body> {
    let content = serde_json::json!({ "error": word, "message": text });
    let mut response = Response::new(body(Bytes::from(format!("{content}\n"))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(PROXY_ERROR, HeaderValue::from_static(word));
    response
}
