//! Listening, connections and the orderly end.

use crate::config;
use crate::error::Error;
use crate::server::front::Front;
use crate::server::tls::{CHALLENGE_PROTOCOL, Certificates};
use gateway::{Peer, Site};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Requests that one HTTP/2 connection may have open.
const STREAMS_PER_CONNECTION: u32 = 256;
/// Bytes of the headers of a request; the URL counts.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// After a failed `accept`, such as for want of file descriptors, wait before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    drain_timeout: Duration,
    places: Arc<Semaphore>,
    site: Site,
}

impl Listener {
    /// Without certificates it speaks plain HTTP.
    pub(crate) async fn bind(
        settings: &config::Server,
        certificates: Option<&Arc<Certificates>>,
    ) -> Result<Self, Error> {
        let tcp = TcpListener::bind(settings.listen).await;
        let tcp = tcp.map_err(Error::io(format!("listen on {} (server.listen)", settings.listen)))?;
        Ok(Self {
            tcp,
            tls: certificates.map(Certificates::acceptor),
            header_timeout: settings.header_timeout.0,
            drain_timeout: settings.drain_timeout.0,
            places: Arc::new(Semaphore::new(settings.connections_max.min(Semaphore::MAX_PERMITS))),
            site: Site::Management,
        })
    }

    /// Another one for what workspaces serve. Both share the places for connections.
    pub(crate) async fn for_content(&self, listen: SocketAddr) -> Result<Self, Error> {
        let tcp = TcpListener::bind(listen).await;
        let tcp = tcp.map_err(Error::io(format!("listen on {listen} (server.content_listen)")))?;
        let (tls, places) = (self.tls.clone(), Arc::clone(&self.places));
        Ok(Self { tcp, tls, places, site: Site::Content, ..*self })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.tcp.local_addr().map_err(Error::io("read the address of the listener"))
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until the end begins, then lets the requests in flight finish within the limit.
    pub(crate) async fn serve(self, front: Front, ending: Ending) {
        let Ending { draining, hurried } = ending;
        let graceful = GracefulShutdown::new();
        while let Some((stream, peer, place)) = self.accept(&draining).await {
            let connection = Connection {
                front: front.clone(),
                peer: Peer { address: peer.ip(), secure: self.tls.is_some(), site: self.site },
                tls: self.tls.clone(),
                header_timeout: self.header_timeout,
                watcher: graceful.watcher(),
                draining: draining.clone(),
            };
            tokio::spawn(async move {
                connection.run(stream).await;
                drop(place);
            });
        }
        // Closes the socket: new connections are refused from here on.
        drop(self.tcp);
        let limit = hurried.run_until_cancelled(tokio::time::sleep(self.drain_timeout));
        tokio::select! {
            () = graceful.shutdown() => {}
            _ = limit => tracing::warn!("requests in flight were cut off"),
        }
    }

    /// The next connection, once there is room for it; `None` when draining.
    async fn accept(&self, draining: &CancellationToken) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        loop {
            let next = async {
                let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
                Some((self.tcp.accept().await, place))
            };
            match draining.run_until_cancelled(next).await?? {
                (Ok((stream, peer)), place) => return Some((stream, peer, place)),
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

struct Connection {
    front: Front,
    peer: Peer,
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    watcher: hyper_util::server::graceful::Watcher,
    draining: CancellationToken,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Answers are small and awaited: do not hold them back to fill packets.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else { return self.speak(stream).await };
        let handshake = tokio::time::timeout(self.header_timeout, tls.accept(stream));
        match self.draining.clone().run_until_cancelled(handshake).await {
            // Whoever challenges has seen all in the handshake.
            Some(Ok(Ok(stream))) if stream.get_ref().1.alpn_protocol() == Some(CHALLENGE_PROTOCOL) => {}
            Some(Ok(Ok(stream))) => self.speak(stream).await,
            Some(Ok(Err(error))) => tracing::debug!(%error, "TLS handshake failed"),
            Some(Err(_)) | None => {}
        }
    }

    async fn speak(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(self.header_timeout)
            .max_buf_size(HEADER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .max_header_list_size(HEADER_BYTES_MAX as u32)
            .keep_alive_interval(Some(self.header_timeout));
        let (front, peer) = (self.front, self.peer);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            front.clone().answer(request)
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        // A client that went away is its own business.
        if let Err(error) = self.watcher.watch(connection.into_owned()).await {
            tracing::debug!(error, "connection ended early");
        }
    }
}

/// How far the end of the server has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    /// No new requests; those in flight may finish.
    pub(crate) draining: CancellationToken,
    /// Somebody asked twice: what is in flight is cut off.
    pub(crate) hurried: CancellationToken,
}

impl Ending {
    /// Follows SIGTERM and SIGINT.
    pub(crate) async fn follow_signals(self) -> io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        for step in [self.draining, self.hurried] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("asked to stop: requests in flight may finish, unless asked again");
            step.cancel();
        }
        Ok(())
    }
}
