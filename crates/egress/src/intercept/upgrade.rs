//! Requests that turn into tunnels, such as WebSockets.
//!
//! ```text
//! the program                              the host
//! HTTP/1.1: `Upgrade` to any protocol  →   HTTP/1.1: the same
//! HTTP/2:   `CONNECT` for a WebSocket  →   HTTP/2:   the same, if it takes that
//!                                      └→  HTTP/1.1: `Upgrade: websocket`
//! ```

use super::body::{self, Body};
use super::headers::{clean_answer, tokens};
use super::progress::{Leash, UnderWay};
use super::tasks::Tasks;
use super::upstream::Lent;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use ring::digest;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::timeout;
use types::World;

/// A program's request to speak another protocol instead of HTTP.
pub(super) struct Upgrade {
    wish: Wish,
    program: OnUpgrade,
}

/// How the program asked.
enum Wish {
    /// In HTTP/1.1, for this protocol.
    Protocol(HeaderValue),
    /// In HTTP/2, which has no keys. The one here is for a host that speaks HTTP/1.1.
    WebSocket { key: String },
}

const WEB_SOCKET: &str = "websocket";

impl Upgrade {
    /// Takes the upgrade out of a request. Returns `None` also for protocols that could carry
    /// requests which nobody judges.
    pub(super) fn take(parts: &mut Parts, world: &World) -> Option<Self> {
        match parts.version {
            Version::HTTP_11 => Self::take_protocol(parts),
            Version::HTTP_2 => Self::take_web_socket(parts, world),
            _ => None,
        }
    }

    fn take_protocol(parts: &mut Parts) -> Option<Self> {
        let is_asked = tokens(&parts.headers, &header::CONNECTION)
            .any(|token| token.eq_ignore_ascii_case("upgrade"));
        let protocol = parts.headers.get(header::UPGRADE).filter(|_| is_asked)?.clone();
        let is_http = |token: &str| {
            let token = token.split('/').next().unwrap_or_default().to_ascii_lowercase();
            ["h2", "h2c", "h3", "http", "tls", ""].contains(&token.as_str())
        };
        if tokens(&parts.headers, &header::UPGRADE).any(is_http) {
            return None;
        }
        let program = parts.extensions.remove::<OnUpgrade>()?;
        Some(Self { wish: Wish::Protocol(protocol), program })
    }

    /// Makes the request the one that it would be in HTTP/1.1, so that rules treat both alike. With
    /// any other protocol it stays a `CONNECT`, which is refused.
    fn take_web_socket(parts: &mut Parts, world: &World) -> Option<Self> {
        let protocol = parts.extensions.get::<Protocol>();
        if protocol.is_none_or(|protocol| protocol.as_str() != WEB_SOCKET) {
            return None;
        }
        let program = parts.extensions.remove::<OnUpgrade>()?;
        parts.method = Method::GET;
        parts.headers.remove(header::CONTENT_LENGTH);
        let key = STANDARD.encode(world.random_bytes::<16>());
        Some(Self { wish: Wish::WebSocket { key }, program })
    }

    /// Returns whether it can be asked for over HTTP/2 as well.
    pub(super) const fn may_be_two(&self) -> bool {
        matches!(self.wish, Wish::WebSocket { .. })
    }

    /// Puts the wish into a request to the host, in the form that its version has for it.
    pub(super) fn ask<B>(&self, request: &mut Request<B>) -> http::Result<()> {
        let is_two = request.version() == Version::HTTP_2;
        let headers = request.headers_mut();
        match &self.wish {
            Wish::Protocol(protocol) => announce(headers, protocol),
            Wish::WebSocket { .. } if is_two => {
                headers.remove(header::SEC_WEBSOCKET_KEY);
                *request.method_mut() = Method::CONNECT;
                request.extensions_mut().insert(Protocol::from_static(WEB_SOCKET));
            }
            Wish::WebSocket { key } => {
                announce(headers, &HeaderValue::from_static(WEB_SOCKET));
                headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::try_from(key)?);
            }
        }
        Ok(())
    }

    /// Returns whether the host has agreed, or an error if its answer can be neither passed on nor
    /// tunnelled.
    pub(super) fn is_begun<B>(&self, answer: &Response<B>) -> Result<bool, &'static str> {
        let is_switched = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let Wish::WebSocket { key } = &self.wish else { return Ok(is_switched) };
        match answer.version() {
            Version::HTTP_2 if answer.status() == StatusCode::OK => Ok(true),
            Version::HTTP_2 if is_switched => Err("it switched protocols within HTTP/2"),
            // The program would take it for a WebSocket.
            _ if answer.status().is_success() => Err("it answered without a WebSocket"),
            _ if is_switched && !accepts(answer.headers(), key) => {
                Err("it did not switch to the WebSocket that was asked for")
            }
            _ => Ok(is_switched),
        }
    }

    /// Connects both sides and returns the answer that says so. `lent` is the connection to the
    /// host, which is in use as long as the tunnel.
    pub(super) fn begin(
        self,
        mut response: Response<Incoming>,
        (lent, leash, under_way): (Lent, Leash, UnderWay),
        idle_timeout: Duration,
        tasks: &Tasks,
    ) -> Response<Body> {
        let upstream = hyper::upgrade::on(&mut response);
        let (mut parts, _) = response.into_parts();
        let protocol = parts.headers.remove(header::UPGRADE);
        clean_answer(&mut parts.headers);
        let mut answer = Response::new(body::empty());
        match self.wish {
            Wish::Protocol(asked) => {
                announce(&mut parts.headers, &protocol.unwrap_or(asked));
                *answer.status_mut() = parts.status;
            }
            Wish::WebSocket { .. } => {
                parts.headers.remove(header::SEC_WEBSOCKET_ACCEPT);
                parts.headers.remove(header::CONTENT_LENGTH);
            }
        }
        *answer.headers_mut() = parts.headers;
        let program = self.program;
        tasks.spawn_awaited(async move {
            let _in_use = (lent, under_way);
            if let (Ok(program), Ok(upstream)) = tokio::join!(program, upstream) {
                tunnel(program, upstream, leash, idle_timeout).await;
            }
        });
        answer
    }
}

fn announce(headers: &mut HeaderMap, protocol: &HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol.clone());
}

/// Returns whether an answer shows that the host has understood a key, and speaks WebSocket.
fn accepts(answer: &HeaderMap, key: &str) -> bool {
    /// From RFC 6455.
    const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let text = format!("{key}{SUFFIX}");
    let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let accept = STANDARD.encode(hash);
    let is_web_socket =
        tokens(answer, &header::UPGRADE).any(|token| token.eq_ignore_ascii_case(WEB_SOCKET));
    is_web_socket && answer.get(header::SEC_WEBSOCKET_ACCEPT).is_some_and(|it| *it == accept)
}

const PIECE_BYTES: usize = 16 << 10;

async fn tunnel(program: Upgraded, upstream: Upgraded, leash: Leash, idle_timeout: Duration) {
    let (from_program, to_program) = split(TokioIo::new(program));
    let (from_upstream, to_upstream) = split(TokioIo::new(upstream));
    let out = pump(from_program, to_upstream, leash.clone(), idle_timeout);
    let back = pump(from_upstream, to_program, leash, idle_timeout);
    // An error ends both directions, but the end of one direction only that one.
    let ended = tokio::try_join!(out, back);
    if let Err(error) = ended {
        tracing::debug!(%error, "a tunnel ended");
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut leash: Leash,
    idle_timeout: Duration,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = match timeout(idle_timeout, from.read(&mut piece)).await {
            Ok(read) => read?,
            Err(_) if leash.progress().quiet() < idle_timeout => continue,
            Err(late) => return Err(late.into()),
        };
        if read == 0 {
            return to.shutdown().await;
        }
        if !leash.holds() {
            return Err(io::Error::other("the rules no longer let it pass"));
        }
        timeout(idle_timeout, to.write_all(&piece[..read])).await??;
        to.flush().await?;
    }
}
