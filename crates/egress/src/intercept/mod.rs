//! Connections that are opened. Each request in them is judged, gets what rules add, and is sent to
//! its host on a connection of our own.
//!
//! ```text
//! serve: TLS of ours, HTTP/1.1 or HTTP/2 ──┐
//! forward: one request to the proxy ───────┴→ target → exchange → upstream (TLS, HTTP/1.1 or
//! HTTP/2)
//! ```

mod body;
mod body_slots;
mod exchange;
mod failure;
mod headers;
mod passing;
mod progress;
mod refusal;
mod shared;
mod target;
mod tasks;
#[cfg(test)]
mod tests;
mod upgrade;
mod upstream;
mod web_sockets;

pub(crate) use body::Body;
pub(crate) use refusal::{bad_request, blocked, unreached};
pub(crate) use shared::{Limits, Shared};
pub(crate) use target::To;
pub(crate) use tasks::Tasks;

use crate::client::Client;
use crate::events::Note;
use admission::{FrameLimited, Lingering};
use exchange::Exchange;
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use progress::Progress;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use types::egress::EgressDecision;
use types::parts::hosts::Host;

/// Serves a connection of `client` until it and everything it led to has ended. The caller has
/// judged `to`; each request is judged again here.
pub(crate) async fn serve<S>(shared: Arc<Shared>, client: Arc<Client>, stream: S, to: To)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if !to.is_tls {
        return Box::pin(run(shared, client, stream, to, Speaks::Either)).await;
    }
    match Box::pin(open(&shared, stream, &to.host)).await {
        Ok(stream) => {
            let speaks = match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => Speaks::Two,
                Some(_) => Speaks::One,
                None => Speaks::Either,
            };
            Box::pin(run(shared, client, stream, to, speaks)).await;
        }
        Err(error) => {
            let To { host, port, .. } = to;
            // Typically the program pins the certificate it expects.
            let rule = format!("TLS was opened for rules, and the program ended it: {error}");
            let note = Note { rule, ..Note::new(EgressDecision::Failed, host.to_string(), port) };
            shared.events.note(&client.instance, note);
        }
    }
}

type Opened<S> = tokio_rustls::server::TlsStream<S>;

async fn open<S>(shared: &Shared, stream: S, host: &Host) -> io::Result<Opened<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let tls = shared.authority.tls(host).map_err(io::Error::other)?;
    timeout(shared.limits.handshake_timeout, TlsAcceptor::from(tls).accept(stream)).await?
}

/// The version of HTTP that a client speaks.
enum Speaks {
    One,
    Two,
    /// Decided by its first bytes.
    Either,
}

async fn run<S>(shared: Arc<Shared>, client: Arc<Client>, stream: S, to: To, speaks: Speaks)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (tasks, _stop) = Tasks::stopped_with_guard();
    let builder = builder(&shared, tasks.clone(), speaks);
    let (head_timeout, idle_timeout) = (shared.limits.head_timeout, shared.limits.idle_timeout);
    let progress = Arc::new(Progress::new());
    let linger = shared.limits.linger.clone();
    let (stream, close) = linger.over_stream(stream);
    let exchange = Exchange::new(shared, client, Arc::clone(&progress), tasks.clone());
    let exchange = Arc::new(exchange);
    let service = service_fn(|request: Request<Incoming>| {
        let (exchange, to) = (Arc::clone(&exchange), to.clone());
        let (request, expected) = linger.over(request);
        async move {
            let answer = Box::pin(exchange.answer(request, Some(&to), to.scheme())).await;
            Ok::<_, Infallible>(expected.tell(answer))
        }
    });
    let connection = builder
        .serve_connection_with_upgrades(TokioIo::new(FrameLimited::from_client(stream)), service);
    let allowed = || if progress.is_busy() { idle_timeout } else { head_timeout };
    let ended = {
        let mut connection = pin!(connection);
        let mut is_ending = false;
        loop {
            let left = if is_ending { ENDING } else { allowed().saturating_sub(progress.quiet()) };
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = sleep(left) => {
                    match progress.quiet() >= allowed() {
                        true if is_ending || progress.is_busy() => return,
                        true => {
                            is_ending = true;
                            connection.as_mut().graceful_shutdown();
                        }
                        false => {}
                    }
                }
            }
        }
    };
    if let Err(error) = ended {
        close.after(error.as_ref()).await;
    }
    // Tunnels that requests have turned into go on.
    tasks.ended().await;
}

/// How long a client gets to notice that its connection is closing.
const ENDING: Duration = Duration::from_secs(1);

/// How much of an answer is buffered for an HTTP/2 client that does not read it.
const SEND_BYTES_MAX: usize = 64 << 10;

fn builder(shared: &Shared, tasks: Tasks, speaks: Speaks) -> auto::Builder<Tasks> {
    let head_bytes_max = shared.head_bytes_max();
    let mut builder = auto::Builder::new(tasks);
    builder
        .http1()
        .timer(TokioTimer::new())
        // Some programs close their side to say that they have sent all their requests.
        .half_close(true)
        .header_read_timeout(shared.limits.head_timeout)
        .max_buf_size(head_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .enable_connect_protocol()
        .max_concurrent_streams(shared.limits.streams_max)
        .max_send_buf_size(SEND_BYTES_MAX)
        .max_header_list_size(u32::try_from(head_bytes_max).unwrap_or(u32::MAX));
    match speaks {
        Speaks::One => builder.http1_only(),
        Speaks::Two => builder.http2_only(),
        Speaks::Either => builder,
    }
}

/// Passes on one request to the explicit proxy, which has an absolute URI. Whatever it turns into
/// is added to `tasks`.
pub(crate) async fn forward(
    shared: Arc<Shared>,
    client: Arc<Client>,
    request: Request<Lingering<Incoming>>,
    scheme: Scheme,
    tasks: &Tasks,
) -> Response<Body> {
    let exchange = Exchange::new(shared, client, Arc::new(Progress::new()), tasks.clone());
    Box::pin(exchange.answer(request, None, scheme)).await
}
