//! Requests that turn into tunnels, such as WebSockets.

use super::body::{self, Body};
use super::headers::{clean_answer, tokens};
use super::progress::{Leash, UnderWay};
use super::tasks::Tasks;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Response, Version};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::time::timeout;

/// A program's request to speak another protocol instead of HTTP/1.1.
pub(super) struct Upgrade {
    protocol: HeaderValue,
    program: OnUpgrade,
}

impl Upgrade {
    /// Takes the upgrade out of a request. Returns `None` also for protocols that could carry
    /// requests which nobody judges.
    pub(super) fn take(parts: &mut Parts) -> Option<Self> {
        let is_asked = parts.version == Version::HTTP_11
            && tokens(&parts.headers, &header::CONNECTION)
                .any(|token| token.eq_ignore_ascii_case("upgrade"));
        let protocol = parts.headers.get(header::UPGRADE).filter(|_| is_asked)?.clone();
        let is_http = |token: &str| {
            let token = token.split('/').next().unwrap_or_default().to_ascii_lowercase();
            ["h2", "h2c", "h3", "http", "tls", ""].contains(&token.as_str())
        };
        if tokens(&parts.headers, &header::UPGRADE).any(is_http) {
            return None;
        }
        parts.extensions.remove::<OnUpgrade>().map(|program| Self { protocol, program })
    }

    pub(super) fn protocol(&self) -> &HeaderValue {
        &self.protocol
    }

    /// Connects both sides and returns the answer that says so.
    pub(super) fn begin(
        self,
        mut response: Response<Incoming>,
        leash: Leash,
        under_way: UnderWay,
        idle_timeout: Duration,
        tasks: &Tasks,
    ) -> Response<Body> {
        let upstream = hyper::upgrade::on(&mut response);
        let (mut parts, _) = response.into_parts();
        let protocol = parts.headers.remove(header::UPGRADE).unwrap_or(self.protocol);
        clean_answer(&mut parts.headers);
        announce(&mut parts.headers, &protocol);
        let mut answer = Response::new(body::empty());
        *answer.status_mut() = parts.status;
        *answer.headers_mut() = parts.headers;
        let program = self.program;
        tasks.spawn_awaited(async move {
            let _under_way = under_way;
            if let (Ok(program), Ok(upstream)) = tokio::join!(program, upstream) {
                tunnel(program, upstream, leash, idle_timeout).await;
            }
        });
        answer
    }
}

pub(super) fn announce(headers: &mut HeaderMap, protocol: &HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol.clone());
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
