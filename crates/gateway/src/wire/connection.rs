//! One HTTP/1.1 connection to a workload.
//!
//! Whoever waits for its answer drives it: no task stands between a request and its connection, so
//! nothing has to be woken on the way, and letting go of an answer closes the connection at once.

use crate::body::Outgoing;
use crate::settings::Settings;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) struct Wire {
    sender: SendRequest<Outgoing>,
    connection: Connection<TokioIo<TcpStream>, Outgoing>,
    ended: bool,
    patience: Patience,
}

/// When the last byte of a request went out; shared with its body.
#[derive(Clone)]
pub(crate) struct Pulse(Arc<Mutex<Instant>>);

impl Pulse {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(crate) fn beat(&self) {
        *self.0.lock() = Instant::now();
    }

    fn last(&self) -> Instant {
        *self.0.lock()
    }
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    /// Nothing was written: the request comes back.
    Unsent(Box<Request<Outgoing>>, hyper::Error),
    Broken(hyper::Error),
    Silent,
}

impl Wire {
    pub(crate) async fn open(stream: TcpStream, settings: &Settings) -> hyper::Result<Box<Self>> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(settings.head_bytes_max)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Box::new(Self {
            sender,
            connection,
            ended: false,
            patience: Patience::new(settings.answer_idle),
        }))
    }

    /// Sends one request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<Outgoing>,
        pulse: Option<Pulse>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        self.patience.begin(pulse);
        let mut answer = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(|cx| {
            drive(&mut self.connection, &mut self.ended, cx);
            match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if self.patience.is_over(cx) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        match answered.await {
            None => Err(NoAnswer::Silent),
            Some(Ok(response)) => Ok(response),
            Some(Err(mut failed)) => Err(match failed.take_message() {
                Some(request) => NoAnswer::Unsent(Box::new(request), failed.into_error()),
                None => NoAnswer::Broken(failed.into_error()),
            }),
        }
    }

    /// Lets the connection read and write what it can. Polling the body of an answer alone moves
    /// nothing.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection, &mut self.ended, cx);
    }

    /// Bytes have come: the workload is alive.
    pub(crate) fn heard(&mut self) {
        self.patience.touch();
    }

    pub(crate) fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        self.patience.is_over(cx)
    }

    /// Whether a next request can be sent. Nobody is woken by a connection that is spare.
    pub(crate) fn is_free(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// The bare connection after a switch of protocols, and what was read of it too far.
    pub(crate) async fn into_stream(mut self: Box<Self>) -> hyper::Result<(TcpStream, Bytes)> {
        if !self.ended {
            poll_fn(|cx| self.connection.poll_without_shutdown(cx)).await?;
        }
        let parts = self.connection.into_parts();
        Ok((parts.io.into_inner(), parts.read_buf))
    }
}

/// An error of the connection reaches whoever waits for the answer or reads its body.
fn drive(
    connection: &mut Connection<TokioIo<TcpStream>, Outgoing>,
    ended: &mut bool,
    cx: &mut Context<'_>,
) {
    if !*ended && connection.poll_without_shutdown(cx).is_ready() {
        *ended = true;
    }
}

/// Notices silence. Its timer is set once for a connection, not for each request, and finds out
/// when it fires how long it has really been silent.
struct Patience {
    limit: Duration,
    since: Instant,
    pulse: Option<Pulse>,
    timer: Pin<Box<Sleep>>,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        let since = Instant::now();
        Self { limit, since, pulse: None, timer: Box::pin(sleep_until(since + limit)) }
    }

    fn begin(&mut self, pulse: Option<Pulse>) {
        self.pulse = pulse;
        self.touch();
    }

    fn touch(&mut self) {
        self.since = Instant::now();
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        while self.timer.as_mut().poll(cx).is_ready() {
            let last = self.pulse.as_ref().map_or(self.since, |pulse| pulse.last().max(self.since));
            let end = last + self.limit;
            if end <= Instant::now() {
                return true;
            }
            self.timer.as_mut().reset(end);
        }
        false
    }
}
