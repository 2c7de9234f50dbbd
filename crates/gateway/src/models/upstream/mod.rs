//! Asks providers, over connections that are kept, with every wait and every length limited.

mod dial;
mod errors;
mod pieces;
mod pool;
mod wire;

pub(crate) use errors::{Broken, Uncollected};
pub(crate) use pieces::Pieces;

use super::Room;
use super::settings::{AnswerTimeouts, ModelSettings};
use crate::wire::Reusable as _;
use admission::FrameLimited;
use bytes::Bytes;
use dial::{Dialer, ProviderAddress};
use errors::Unreachable;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use pool::{Seat, Spares};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use wire::{NoAnswer, Wire};

/// How long, and how many bytes, we go on reading an answer that nobody waits for any more: to use
/// its connection again, or to learn its usage.
pub(crate) const REST_TIME: Duration = Duration::from_secs(1);
pub(crate) const REST_MAX: usize = 16 << 10;
/// After this long without data, a used HTTP/2 connection gets a ping, which must be answered
/// within `PING_TIME`.
const PING_AFTER: Duration = Duration::from_secs(20);
const PING_TIME: Duration = Duration::from_secs(10);
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// How much may be in transit on one HTTP/2 stream before it is read. A connection has room for all
/// of its streams, so that a slow reader does not hold up the others.
const STREAM_WINDOW: u32 = 64 << 10;

/// A request as a provider gets it.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    /// With scheme and authority.
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Pieces,
}

pub(crate) struct Client {
    dialer: Dialer,
    spares: Spares,
    head_bytes_max: usize,
    streams_max: usize,
    _tidying: AbortOnDropHandle<()>,
}

/// The body of a provider's answer. If it is dropped early, its connection is closed.
pub(crate) struct Answer {
    incoming: Incoming,
    way: Way,
    provider: ProviderAddress,
    owner: String,
    spares: Spares,
    timer: Pin<Box<Sleep>>,
    timeouts: AnswerTimeouts,
    until: Instant,
    last: Instant,
    /// The silence that is tolerated now: the first piece may take longer than the others.
    silence_max: Duration,
}

enum Way {
    One(Box<Wire>),
    Two { _seat: Seat },
    Over,
}

impl Client {
    /// Must be called within a runtime.
    pub(crate) fn new(settings: &ModelSettings) -> Self {
        let spares = Spares::new(settings);
        Self {
            dialer: Dialer::new(settings),
            head_bytes_max: settings.head_bytes_max,
            streams_max: settings.streams_max,
            _tidying: AbortOnDropHandle::new(tokio::spawn(spares.clone().tidy())),
            spares,
        }
    }

    /// Sends a request for `owner`, and waits for the head of the answer. Redirects are returned as
    /// answers.
    pub(crate) async fn ask(
        &self,
        request: Outgoing,
        owner: &str,
        timeouts: AnswerTimeouts,
    ) -> Result<Response<Answer>, Broken> {
        let began = Instant::now();
        let until = began + timeouts.total;
        let is_sent = AtomicBool::new(false);
        let host = request.uri.host().unwrap_or_default().to_owned();
        let asked = timeout_at(began + timeouts.first.min(timeouts.total), async {
            let provider = provider_address(&request.uri)?;
            let owner = owner.to_owned();
            let (response, way) = self.exchange(&provider, &owner, request, &is_sent).await?;
            Ok::<_, Broken>((response, way, provider, owner))
        });
        let (response, way, provider, owner) =
            asked.await.unwrap_or_else(|_| match is_sent.load(Ordering::Relaxed) {
                true => Err(Broken::Silent(timeouts.first)),
                false => Err(Unreachable::TooSlow(host).into()),
            })?;
        let (last, silence_max) = (began, timeouts.first.max(timeouts.between));
        let timer = Box::pin(sleep_until(until.min(last + silence_max)));
        let spares = self.spares.clone();
        Ok(response.map(|incoming| Answer {
            incoming,
            way,
            provider,
            owner,
            spares,
            timer,
            timeouts,
            until,
            last,
            silence_max,
        }))
    }

    /// Sends a request over a kept connection or a new one. `is_sent` is set while any of it may
    /// have left.
    async fn exchange(
        &self,
        provider: &ProviderAddress,
        owner: &String,
        request: Outgoing,
        is_sent: &AtomicBool,
    ) -> Result<(Response<Incoming>, Way), Broken> {
        let mut request = request;
        if let Some(seat) = self.spares.seat(provider) {
            is_sent.store(true, Ordering::Relaxed);
            match over_two(seat, second(request)).await {
                Ok(answered) => return Ok(answered),
                Err(NoAnswer::Broken(error)) => return Err(Broken::Cut(error)),
                Err(NoAnswer::Unsent(unsent)) => {
                    is_sent.store(false, Ordering::Relaxed);
                    request = outgoing(*unsent);
                }
            }
        }
        while let Some(mut wire) = self.spares.take(provider) {
            let Outgoing { method, uri, headers, body } = request;
            is_sent.store(true, Ordering::Relaxed);
            match wire.send(first(&method, &uri, headers, body)).await.map_err(NoAnswer::of) {
                Ok(response) => return Ok((response, Way::One(wire))),
                Err(NoAnswer::Broken(error)) => return Err(Broken::Cut(error)),
                // The provider has closed it meanwhile: try the next one, or a new one.
                Err(NoAnswer::Unsent(unsent)) => {
                    is_sent.store(false, Ordering::Relaxed);
                    let (head, body) = unsent.into_parts();
                    request = Outgoing { method, uri, headers: head.headers, body };
                }
            }
        }
        // Boxed: connecting is rare, and requests over kept connections need not carry its state.
        Box::pin(self.anew(provider, owner, request, is_sent)).await
    }

    async fn anew(
        &self,
        provider: &ProviderAddress,
        owner: &String,
        request: Outgoing,
        is_sent: &AtomicBool,
    ) -> Result<(Response<Incoming>, Way), Broken> {
        let (stream, is_two) = self.dialer.dial(provider, owner).await?;
        is_sent.store(true, Ordering::Relaxed);
        if !is_two {
            let wire = Wire::open(stream, self.head_bytes_max).await;
            let mut wire = Box::new(wire.map_err(Broken::Cut)?);
            let Outgoing { method, uri, headers, body } = request;
            return match wire.send(first(&method, &uri, headers, body)).await.map_err(NoAnswer::of)
            {
                Ok(response) => Ok((response, Way::One(wire))),
                Err(NoAnswer::Broken(error)) => Err(Broken::Cut(error)),
                Err(NoAnswer::Unsent(_)) => Err(reset(provider).into()),
            };
        }
        let streams = u32::try_from(self.streams_max).unwrap_or(u32::MAX);
        let handshake = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(STREAM_WINDOW.saturating_mul(streams))
            .max_header_list_size(u32::try_from(self.head_bytes_max).unwrap_or(u32::MAX))
            // All requests share it: a dead connection must not swallow them until TCP gives up.
            .keep_alive_interval(Some(PING_AFTER))
            .keep_alive_timeout(PING_TIME)
            .handshake(TokioIo::new(FrameLimited::from_server(stream)));
        let (sender, connection) = handshake.await.map_err(Broken::Cut)?;
        let driving = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to a provider ended");
            }
        });
        let driving = AbortOnDropHandle::new(driving);
        let seat = self.spares.share(provider, owner, sender, driving);
        over_two(seat, second(request)).await.map_err(|no_answer| match no_answer {
            NoAnswer::Broken(error) => Broken::Cut(error),
            NoAnswer::Unsent(_) => reset(provider).into(),
        })
    }
}

/// The error for a connection that the provider closed before anything was sent over it.
fn reset(provider: &ProviderAddress) -> Unreachable {
    let error = io::Error::from(io::ErrorKind::ConnectionReset);
    Unreachable::Failed { host: provider.host.clone(), error }
}

async fn over_two(
    seat: Seat,
    request: Request<Pieces>,
) -> Result<(Response<Incoming>, Way), NoAnswer> {
    let mut sender = seat.0.sender.clone();
    let response = sender.try_send_request(request).await.map_err(NoAnswer::of)?;
    Ok((response, Way::Two { _seat: seat }))
}

fn provider_address(uri: &Uri) -> Result<ProviderAddress, Unreachable> {
    let bad = || Unreachable::BadAddress(uri.clone());
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad()),
    };
    let authority = uri.authority().ok_or_else(bad)?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return Err(bad());
    }
    let port = authority.port_u16().unwrap_or(if secure { HTTPS } else { HTTP });
    Ok(ProviderAddress { secure, host: authority.host().to_ascii_lowercase(), port })
}

/// Builds a request for HTTP/1.1, with the host in a header and only the path in the first line.
fn first(method: &Method, uri: &Uri, mut headers: HeaderMap, body: Pieces) -> Request<Pieces> {
    if let Some(Ok(host)) = uri.authority().map(|at| HeaderValue::from_str(at.as_str())) {
        headers.insert(HOST, host);
    }
    let target = uri.path_and_query().cloned();
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.uri_mut() = target.map_or_else(|| Uri::from_static("/"), Uri::from);
    *request.headers_mut() = headers;
    request
}

fn second(outgoing: Outgoing) -> Request<Pieces> {
    let mut request = Request::new(outgoing.body);
    *request.method_mut() = outgoing.method;
    *request.uri_mut() = outgoing.uri;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = outgoing.headers;
    request
}

fn outgoing(request: Request<Pieces>) -> Outgoing {
    let (head, body) = request.into_parts();
    Outgoing { method: head.method, uri: head.uri, headers: head.headers, body }
}

impl Answer {
    /// Returns the next piece. After an error, nothing more comes.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            let polled = match &mut self.way {
                Way::Over => return Poll::Ready(None),
                Way::One(wire) => wire.poll_frame(&mut self.incoming, cx),
                Way::Two { .. } => Pin::new(&mut self.incoming).poll_frame(cx),
            };
            match polled {
                Poll::Ready(Some(Ok(frame))) => {
                    self.last = Instant::now();
                    if self.silence_max != self.timeouts.between {
                        // The time for the first piece may end far later.
                        self.silence_max = self.timeouts.between;
                        self.timer.as_mut().reset(self.until.min(self.last + self.silence_max));
                    }
                    let data = frame.into_data();
                    if self.incoming.is_end_stream() {
                        self.give_back();
                    }
                    match data {
                        Ok(data) if !data.is_empty() => return Poll::Ready(Some(Ok(data))),
                        // Trailers say nothing about the answer itself.
                        _ => {}
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    self.way = Way::Over;
                    return Poll::Ready(Some(Err(Broken::Cut(error))));
                }
                Poll::Ready(None) => {
                    self.give_back();
                    return Poll::Ready(None);
                }
                Poll::Pending => return self.poll_timeouts(cx).map(Err).map(Some),
            }
        }
    }

    fn poll_timeouts(&mut self, cx: &mut Context<'_>) -> Poll<Broken> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            let silent = self.last + self.silence_max;
            let why = if now >= self.until {
                Broken::OutOfTime(self.timeouts.total)
            } else if now >= silent {
                Broken::Silent(self.silence_max)
            } else {
                self.timer.as_mut().reset(self.until.min(silent));
                continue;
            };
            self.way = Way::Over;
            return Poll::Ready(why);
        }
    }

    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, Broken>> {
        std::future::poll_fn(|cx| self.poll_piece(cx)).await
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.way, Way::Over) || self.incoming.is_end_stream()
    }

    /// Reads everything, or a little more than `max` bytes, and returns whether that is everything.
    pub(crate) async fn collect(&mut self, max: usize) -> Result<(Vec<Bytes>, bool), Broken> {
        self.collect_with(max, |_| Ok(())).await
    }

    /// The same within a room, which has to be kept for as long as the pieces are.
    pub(crate) async fn collect_in(
        &mut self,
        room: &mut Room,
        max: usize,
    ) -> Result<(Vec<Bytes>, bool), Uncollected> {
        self.collect_with(max, |length| Ok(room.grow(length)?)).await
    }

    /// Reads as [`Answer::collect`] does, and hands `count` the length of each piece.
    async fn collect_with<E: From<Broken>>(
        &mut self,
        max: usize,
        mut count: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(Vec<Bytes>, bool), E> {
        let (mut pieces, mut length) = (Vec::new(), 0);
        while let Some(piece) = self.piece().await {
            let piece = piece?;
            count(piece.len())?;
            length += piece.len();
            pieces.push(piece);
            if length > max {
                return Ok((pieces, false));
            }
        }
        Ok((pieces, true))
    }

    /// Reads the rest, which nobody needs, so that the connection can be used again.
    pub(crate) fn read_on(mut self) {
        if self.is_over() {
            return;
        }
        tokio::spawn(async move {
            let _ = timeout(REST_TIME, self.collect(REST_MAX)).await;
        });
    }

    /// Gives back a connection whose answer was read to its end.
    fn give_back(&mut self) {
        if let Way::One(mut wire) = std::mem::replace(&mut self.way, Way::Over)
            && wire.is_free()
        {
            self.spares.put(&self.provider, &self.owner, wire);
        }
    }
}

/// Returns whether an answer is a redirect. None is followed.
pub(crate) fn is_redirect(head: &response::Parts) -> bool {
    head.status.is_redirection() && head.status != StatusCode::NOT_MODIFIED
}

/// Allows one client to be shared by the whole server.
pub(crate) type SharedClient = Arc<Client>;
