//! Listening, connections and orderly shutdown.

use crate::config;
use crate::error::Error;
use crate::server::connections::Gate;
use crate::server::front::Front;
use crate::server::heads;
use crate::server::process;
use crate::server::threads::Threads;
use crate::server::tls::{CHALLENGE_PROTOCOL, Certificates};
use admission::{FrameLimited, Heads, UNSENT_BYTES_MAX};
use gateway::{Peer, Site};
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustix::net::sockopt;
use socket2::SockRef;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How many connections of strangers are closed when no file is left for another.
const ROOM_AT_ERROR: usize = 64;
/// Most bytes buffered of one answer for a client that does not read.
const SEND_BYTES_MAX: usize = 64 << 10;
/// How much of bodies that nobody reads on may be on its way: of one request, and of all on an
/// HTTP/2 connection. Four requests that a workload does not read on leave no room to the others of the
/// same connection, whoever those are for; with equal windows one would.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Most open requests on one HTTP/2 connection.
const STREAMS_PER_CONNECTION: u32 = 256;
/// An HTTP/2 connection is closed when it has more than this many requests that were reset before
/// they were looked at, or that were malformed.
const RESETS_PENDING_MAX: usize = 20;
const RESETS_LOCAL_MAX: usize = 256;
/// Most bytes of a request's headers, including its URL.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// A client that said nothing for this long is asked whether it is still there, and is gone if it
/// does not answer several times. Otherwise a socket whose client lost its network, or whose machine
/// was switched off, would never end. Two minutes in all, so that a short outage ends nothing.
const ALIVE_AFTER: Duration = Duration::from_secs(60);
const ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const ALIVE_PROBES: u32 = 4;
/// Pause after a failed `accept`, for example because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    drain_timeout: Duration,
    gate: Gate,
    threads: Threads,
    site: Site,
}

impl Listener {
    /// Opens the listener. Without certificates it speaks plain HTTP.
    pub(crate) async fn bind(
        settings: &config::Server,
        certificates: Option<&Arc<Certificates>>,
        gate: Gate,
        threads: Threads,
    ) -> Result<Self, Error> {
        let tcp = open(settings.listen).await;
        let tcp =
            tcp.map_err(Error::io(format!("listen on {} (server.listen)", settings.listen)))?;
        Ok(Self {
            tcp,
            tls: certificates.map(Certificates::acceptor),
            header_timeout: settings.header_timeout.0,
            drain_timeout: settings.drain_timeout.0,
            gate,
            threads,
            site: Site::Management,
        })
    }

    /// Opens a second listener for what workspaces serve. Both share the limits on connections.
    pub(crate) async fn for_content(&self, listen: SocketAddr) -> Result<Self, Error> {
        let tcp = open(listen).await;
        let tcp = tcp.map_err(Error::io(format!("listen on {listen} (server.content_listen)")))?;
        let (tls, gate, threads) = (self.tls.clone(), self.gate.clone(), self.threads.clone());
        Ok(Self { tcp, tls, gate, threads, site: Site::Content, ..*self })
    }

    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.tcp.local_addr().map_err(Error::io("read the address of the listener"))
    }

    /// Serves until draining begins, then lets requests in flight finish within the time limit.
    pub(crate) async fn serve(self, front: Front, ending: Ending) {
        let Ending { draining, hurried } = ending;
        let graceful = GracefulShutdown::new();
        while let Some((stream, peer)) = self.accept(&draining).await {
            // A client with too many connections finds this one closed.
            let Some(taken) = self.gate.admit(peer.ip()) else { continue };
            let connection = Connection {
                front: front.clone(),
                gate: self.gate.clone(),
                taken: taken.clone(),
                peer: Peer { address: peer.ip(), secure: self.tls.is_some(), site: self.site },
                tls: self.tls.clone(),
                header_timeout: self.header_timeout,
                watcher: graceful.watcher(),
                draining: draining.clone(),
            };
            self.threads.serve(stream, |stream| connection.run_while_welcome(stream, taken));
        }
        // Closes the socket: new connections are refused from here on.
        drop(self.tcp);
        let limit = hurried.run_until_cancelled(tokio::time::sleep(self.drain_timeout));
        tokio::select! {
            () = graceful.shutdown() => {}
            _ = limit => tracing::warn!("requests in flight were cut off"),
        }
    }

    /// Accepts the next connection, however many are open: the gate decides who has to make room.
    /// Returns `None` once draining.
    async fn accept(&self, draining: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        loop {
            match draining.run_until_cancelled(self.tcp.accept()).await? {
                Ok(accepted) => {
                    if process::few_files_left(&accepted.0) {
                        // Who came without credentials must not keep the last ones.
                        self.gate.make_room(1);
                    }
                    return Some(accepted);
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    if process::has_no_file_left(&error) {
                        self.gate.make_room(ROOM_AT_ERROR);
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Opens a socket that listens. Linux gives its options to every connection that it accepts.
async fn open(at: SocketAddr) -> io::Result<TcpListener> {
    let tcp = TcpListener::bind(at).await?;
    sockopt::set_tcp_keepidle(&tcp, ALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(&tcp, ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&tcp, ALIVE_PROBES)?;
    sockopt::set_socket_keepalive(&tcp, true)?;
    SockRef::from(&tcp).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    Ok(tcp)
}

struct Connection {
    front: Front,
    gate: Gate,
    taken: admission::Connection,
    peer: Peer,
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    watcher: hyper_util::server::graceful::Watcher,
    draining: CancellationToken,
}

impl Connection {
    /// Serves the connection, and closes it if no whole request comes in time, wherever the client
    /// stopped: in the TLS handshake, in the line with the HTTP version, or in the headers. A
    /// stranger is also closed when its place is needed for another. The HTTP library itself has no
    /// time limit for the version line or for HTTP/2 headers.
    async fn run_while_welcome(self, stream: TcpStream, taken: admission::Connection) {
        let first_request = self.gate.first_request;
        let closed = |why: &'static str| {
            metrics::counter!("holm_connections_closed_total", "why" => why).increment(1);
            tracing::debug!(why, "a connection was closed");
        };
        tokio::select! {
            () = self.run(stream) => {}
            () = taken.silent(first_request) => closed("silent"),
            () = taken.closing() => closed("room"),
        }
    }

    async fn run(self, stream: TcpStream) {
        // Answers are small and awaited, so they are not held back to fill packets.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else { return self.speak(stream).await };
        let handshake = tokio::time::timeout(self.header_timeout, tls.accept(stream));
        match self.draining.clone().run_until_cancelled(handshake).await {
            // A certificate authority has seen all that it needs in the handshake.
            Some(Ok(Ok(stream)))
                if stream.get_ref().1.alpn_protocol() == Some(CHALLENGE_PROTOCOL) => {}
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
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
            .max_local_error_reset_streams(RESETS_LOCAL_MAX)
            .keep_alive_interval(Some(self.header_timeout))
            .keep_alive_timeout(self.header_timeout);
        let Self { front, peer, gate, taken, watcher, .. } = self;
        let (readers, linger, heads) =
            (gate.readers.clone(), gate.linger.clone(), Heads::default());
        let (stream, close) = linger.over_stream(stream);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (busy, remote) = (taken.begin(), gate.remote(peer.address, request.headers()));
            let head = gate.heads.take(&heads, &taken, remote, &request);
            let extensions = request.extensions_mut();
            extensions.insert(peer);
            extensions.insert(remote);
            extensions.insert(taken.clone());
            let (front, readers) = (front.clone(), readers.clone());
            let (request, expected) = linger.over(request);
            // Must be called inside the block: a future made outside and awaited inside would be
            // stored twice, and this one is large.
            async move {
                let head = match head {
                    Ok(head) => head,
                    Err(refused) => {
                        let response = front.refuse(&request, heads::refuse(&refused));
                        return Ok(expected.tell(response));
                    }
                };
                let response = expected.tell(front.answer(request).await?);
                Ok::<_, Infallible>(readers.watch(response, (busy, head)))
            }
        });
        let connection = builder.serve_connection_with_upgrades(
            TokioIo::new(FrameLimited::from_client(stream)),
            service,
        );
        let ended = watcher.watch(connection.into_owned()).await;
        // Clients may go away whenever they like.
        if let Err(error) = ended {
            tracing::debug!(error, "connection ended early");
            close.after(error.as_ref()).await;
        }
    }
}

/// How far shutdown has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    /// No new requests are accepted; those in flight may finish.
    pub(crate) draining: CancellationToken,
    /// The server was asked to stop a second time: requests in flight are cut off.
    pub(crate) hurried: CancellationToken,
}

impl Ending {
    /// Listens for SIGTERM and SIGINT. Both are caught once this returns, so whoever is told that
    /// the server is ready can ask for an orderly shutdown, however busy the machine is.
    pub(crate) fn follow_signals(&self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let listen = |kind| signal(kind).map_err(Error::io("listen for signals"));
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let Self { draining, hurried } = self.clone();
        tokio::spawn(async move {
            for step in [draining, hurried] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                tracing::info!("asked to stop: requests in flight may finish, unless asked again");
                step.cancel();
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns both ends of a connection, the client's first.
    async fn connected() -> (TcpStream, TcpStream) {
        let listener = open(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn little_is_kept_for_a_client_that_does_not_read() {
        let (client, accepted) = connected().await;
        SockRef::from(&client).set_recv_buffer_size(64 << 10).unwrap();
        let (piece, mut taken) = (vec![0; 64 << 10], 0);
        let write = async {
            while accepted.writable().await.is_ok() {
                if let Ok(some) = accepted.try_write(&piece) {
                    taken += some;
                }
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), write).await;
        assert!((1..1 << 20).contains(&taken), "{taken}");
    }

    #[tokio::test]
    async fn a_client_that_vanished_is_asked_for() {
        let (_client, accepted) = connected().await;
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), ALIVE_AFTER);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), ALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), ALIVE_PROBES);
    }
}
