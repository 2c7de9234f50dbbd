//! Connections to hosts, for the requests on one connection of an instance.

use super::body::Body;
use super::failure::Failure;
use super::shared::Shared;
use super::target::Target;
use super::tasks::Tasks;
use super::web_sockets::{Streams, WebSockets, overhear};
use crate::client::Client;
use crate::upstream_tls::server_name;
use admission::{BeforeAnswer, Bounded, FrameLimited};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::rt::Executor as _;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use types::parts::hosts::Host;

/// The HTTP version that a connection must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Whatever both sides support.
    Any,
    One,
    /// HTTP/2 without TLS. There is no negotiation then, so the program's own choice is passed on.
    Two,
    /// HTTP/2 if the host takes WebSockets over it, else HTTP/1.1. For programs that speak HTTP/2.
    WebSocket,
}

/// Where a kept connection leads.
type Origin = (Host, u16, bool);

impl Target {
    fn origin(&self) -> Origin {
        (self.host.clone(), self.port, self.is_tls)
    }
}

pub(super) struct Upstreams {
    kept: Mutex<Vec<(Origin, Kept)>>,
    /// Held by the first request, which finds out the HTTP version of a host. With HTTP/2, one
    /// connection is enough.
    first: tokio::sync::Mutex<()>,
    is_one: AtomicBool,
    places: Arc<Semaphore>,
    tasks: Tasks,
}

enum Kept {
    One(One),
    /// With the place that all requests on it share.
    Two(Two, Weak<Place>),
}

struct One {
    sender: http1::SendRequest<Body>,
    before_answer: BeforeAnswer,
}

#[derive(Clone)]
struct Two {
    sender: http2::SendRequest<Body>,
    web_sockets: watch::Receiver<WebSockets>,
    /// Requests that the host does not take yet wait here, because one that waits in the connection
    /// cannot be called back.
    streams: Arc<Semaphore>,
}

/// A permit for one of the connections that can be in use at once.
type Place = OwnedSemaphorePermit;

enum Sender {
    One(One),
    Two(Two),
}

/// A connection that can take a request now.
pub(super) struct Lent {
    sender: Sender,
    origin: Origin,
    _place: Arc<Place>,
    _stream: Option<OwnedSemaphorePermit>,
    /// Whether it was used before, so that its host may have closed it since.
    pub(super) is_used: bool,
}

/// Gives a connection back when its answer is complete.
pub(super) struct Return {
    upstreams: Arc<Upstreams>,
    lent: Lent,
}

impl Return {
    pub(super) fn new(upstreams: Arc<Upstreams>, lent: Lent) -> Self {
        Self { upstreams, lent }
    }

    pub(super) fn give_back(self) {
        let Self { upstreams, lent: Lent { sender, origin, .. } } = self;
        let mut kept = upstreams.kept.lock();
        if let Sender::One(one) = sender
            && kept.len() < KEPT_MAX
        {
            kept.push((origin, Kept::One(one)));
        }
    }
}

/// How many unused connections are kept for one connection of an instance.
const KEPT_MAX: usize = 8;
/// How long to wait for a connection to notice that its last exchange has ended.
const READY_WAIT: Duration = Duration::from_millis(50);

impl Upstreams {
    pub(super) fn new(places: usize, tasks: Tasks) -> Self {
        Self {
            kept: Mutex::default(),
            first: tokio::sync::Mutex::default(),
            is_one: AtomicBool::new(false),
            places: Arc::new(Semaphore::new(places.max(1))),
            tasks,
        }
    }

    /// Returns a connection that takes a request at once.
    pub(super) async fn lend(
        &self,
        shared: &Shared,
        client: &Client,
        target: &Target,
        need: Need,
    ) -> Result<Lent, Failure> {
        let lent = self.lend_suitable(shared, client, target, need).await?;
        Ok(lent.with_stream().await)
    }

    async fn lend_suitable(
        &self,
        shared: &Shared,
        client: &Client,
        target: &Target,
        need: Need,
    ) -> Result<Lent, Failure> {
        if need != Need::WebSocket {
            return self.lend_version(shared, client, target, need).await;
        }
        let usual = if target.is_tls { Need::Any } else { Need::Two };
        let lent = self.lend_version(shared, client, target, usual).await?;
        if lent.takes_web_sockets(shared.limits.handshake_timeout).await {
            return Ok(lent);
        }
        // Before it waits for another place. The connection itself is kept for other requests.
        drop(lent);
        self.lend_version(shared, client, target, Need::One).await
    }

    async fn lend_version(
        &self,
        shared: &Shared,
        client: &Client,
        target: &Target,
        need: Need,
    ) -> Result<Lent, Failure> {
        let origin = target.origin();
        if let Some(lent) = self.take_kept(&origin, need).await {
            return Ok(lent);
        }
        let may_be_two = target.is_tls && need == Need::Any && !self.is_one.load(Ordering::Relaxed);
        let _first = match may_be_two {
            true => Some(self.first.lock().await),
            false => None,
        };
        if may_be_two && let Some(lent) = self.take_kept(&origin, need).await {
            return Ok(lent);
        }
        let place = self.place().await;
        let sender = self.connect(shared, client, target, need).await?;
        if may_be_two {
            self.is_one.store(matches!(sender, Sender::One(_)), Ordering::Relaxed);
        }
        if let Sender::Two(two) = &sender {
            self.share(origin.clone(), two.clone(), &place);
        }
        Ok(Lent { sender, origin, _place: place, _stream: None, is_used: false })
    }

    #[expect(clippy::expect_used, reason = "it is never closed")]
    async fn place(&self) -> Arc<Place> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        Arc::new(place.expect("the places of a connection"))
    }

    /// Makes an HTTP/2 connection available to later requests too. If there are too many, the one
    /// kept longest is dropped, and ends with its last request.
    fn share(&self, origin: Origin, two: Two, place: &Arc<Place>) {
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push((origin, Kept::Two(two, Arc::downgrade(place))));
    }

    async fn take_kept(&self, origin: &Origin, need: Need) -> Option<Lent> {
        loop {
            match self.find_kept(origin, need)? {
                Kept::One(mut one) => {
                    let place = self.place().await;
                    if !matches!(timeout(READY_WAIT, one.sender.ready()).await, Ok(Ok(()))) {
                        continue;
                    }
                    return Some(Lent::kept(Sender::One(one), origin, place));
                }
                Kept::Two(two, place) => {
                    let place = match place.upgrade() {
                        Some(place) => place,
                        None => self.place_again(origin).await,
                    };
                    return Some(Lent::kept(Sender::Two(two), origin, place));
                }
            }
        }
    }

    /// Returns a place for an HTTP/2 connection that had no requests for a while.
    async fn place_again(&self, origin: &Origin) -> Arc<Place> {
        let place = self.place().await;
        for (known, kept) in self.kept.lock().iter_mut() {
            match kept {
                // Another request was faster, so both share its place.
                Kept::Two(_, of) if known == origin => match of.upgrade() {
                    Some(sooner) => return sooner,
                    None => *of = Arc::downgrade(&place),
                },
                _ => {}
            }
        }
        place
    }

    fn find_kept(&self, origin: &Origin, need: Need) -> Option<Kept> {
        let mut kept = self.kept.lock();
        kept.retain(|(_, kept)| match kept {
            Kept::One(one) => !one.sender.is_closed(),
            Kept::Two(two, _) => !two.sender.is_closed(),
        });
        let suits = |kept: &Kept| match kept {
            Kept::One(_) => need != Need::Two,
            Kept::Two(..) => need != Need::One,
        };
        let index = kept.iter().rposition(|(known, kept)| known == origin && suits(kept))?;
        match &kept[index].1 {
            Kept::Two(two, place) => Some(Kept::Two(two.clone(), Weak::clone(place))),
            Kept::One(_) => Some(kept.swap_remove(index).1),
        }
    }

    /// Forgets the kept connections to a host, because one of them does not answer: the host has most
    /// likely ended the others too.
    pub(super) fn forget(&self, target: &Target) {
        let origin = target.origin();
        self.kept.lock().retain(|(known, _)| *known != origin);
    }

    async fn connect(
        &self,
        shared: &Shared,
        client: &Client,
        target: &Target,
        need: Need,
    ) -> Result<Sender, Failure> {
        let host = &target.host;
        let dialed = shared.dial.dial(client, host, target.port).await.map_err(Failure::Dial)?;
        if !target.is_tls {
            return self.shake_hands(shared, host, dialed, need == Need::Two).await;
        }
        let failed = |error| Failure::Tls { host: host.clone(), error };
        let name = server_name(host)
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let tls = &shared.upstream_tls;
        let tls = if need == Need::One { &tls.one } else { &tls.either };
        let opening = TlsConnector::from(Arc::clone(tls)).connect(name, dialed);
        let opened = timeout(shared.limits.handshake_timeout, Box::pin(opening)).await;
        let opened =
            opened.map_err(|_| Failure::TooSlow { host: host.clone() })?.map_err(failed)?;
        let is_two = opened.get_ref().1.alpn_protocol() == Some(b"h2");
        self.shake_hands(shared, host, opened, is_two).await
    }

    async fn shake_hands<S>(
        &self,
        shared: &Shared,
        host: &Host,
        stream: S,
        is_two: bool,
    ) -> Result<Sender, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failed =
            |error: hyper::Error| Failure::Broken { host: host.clone(), error: error.into() };
        let head_bytes_max = shared.head_bytes_max();
        if is_two {
            let (tell, web_sockets) = watch::channel(WebSockets::Unknown);
            let streams = Streams::new(usize::try_from(shared.limits.streams_max).unwrap_or(1));
            let places = Arc::clone(&streams.places);
            let stream = FrameLimited::from_server(overhear(stream, tell, streams));
            let (sender, connection) = http2::Builder::new(self.tasks.clone())
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(head_bytes_max).unwrap_or(u32::MAX))
                .handshake(TokioIo::new(stream))
                .await
                .map_err(failed)?;
            self.tasks.execute(connection);
            return Ok(Sender::Two(Two { sender, web_sockets, streams: places }));
        }
        let (stream, before_answer) = Bounded::for_heads(stream, head_bytes_max);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(head_bytes_max)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        self.tasks.execute(connection.with_upgrades());
        Ok(Sender::One(One { sender, before_answer }))
    }
}

type Sent = Result<Response<Incoming>, TrySendError<Request<Body>>>;

impl Lent {
    fn kept(sender: Sender, origin: &Origin, place: Arc<Place>) -> Self {
        Self { sender, origin: origin.clone(), _place: place, _stream: None, is_used: true }
    }

    /// Waits until the host takes one more request.
    async fn with_stream(mut self) -> Self {
        if let Sender::Two(two) = &self.sender {
            self._stream = Arc::clone(&two.streams).acquire_owned().await.ok();
        }
        self
    }

    pub(super) fn is_two(&self) -> bool {
        matches!(self.sender, Sender::Two(_))
    }

    /// Waits until the host has said whether a request on this connection can become a WebSocket.
    async fn takes_web_sockets(&self, limit: Duration) -> bool {
        let Sender::Two(two) = &self.sender else { return true };
        let mut told = two.web_sockets.clone();
        let said = timeout(limit, told.wait_for(|said| *said != WebSockets::Unknown)).await;
        matches!(said, Ok(Ok(said)) if *said == WebSockets::Taken)
    }

    pub(super) async fn send(&mut self, request: Request<Body>) -> Sent {
        match &mut self.sender {
            Sender::One(One { sender, before_answer }) => {
                before_answer.begin();
                let sent = sender.try_send_request(request).await;
                before_answer.end();
                sent
            }
            Sender::Two(two) => two.sender.try_send_request(request).await,
        }
    }
}
