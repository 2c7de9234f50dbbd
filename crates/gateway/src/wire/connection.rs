//! One HTTP/1.1 connection to a workload.
//!
//! The task that waits for an answer drives its connection. There is no task in between, so nothing
//! has to be woken on the way, and dropping an answer closes the connection at once.

use super::request_body::RequestBody;
use super::silence::{LastSent, Silence};
use super::wakes::Wakes;
use crate::settings::Settings;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{self, Handle};

pub(crate) struct Wire {
    sender: SendRequest<RequestBody>,
    connection: Connection<TokioIo<TcpStream>, RequestBody>,
    ended: bool,
    silence: Silence,
    wakes: Wakes,
    /// Where its socket is watched.
    runtime: runtime::Id,
}

/// Why there is no answer.
pub(crate) enum NoAnswer {
    /// Nothing was written: the request comes back.
    Unsent(Box<Request<RequestBody>>, hyper::Error),
    Broken(hyper::Error),
    Silent,
}

/// Why the body of an answer ended early.
pub(crate) enum ReadError {
    Broken(hyper::Error),
    Silent,
}

type NextFrame = Option<Result<Frame<Bytes>, ReadError>>;

impl Wire {
    pub(super) async fn open(stream: TcpStream, settings: &Settings) -> hyper::Result<Box<Self>> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(settings.head_bytes_max)
            .handshake(TokioIo::new(stream))
            .await?;
        let silence = Silence::new(settings.answer_idle);
        let (wakes, runtime) = (Wakes::new(), Handle::current().id());
        Ok(Box::new(Self { sender, connection, ended: false, silence, wakes, runtime }))
    }

    pub(super) const fn runtime(&self) -> runtime::Id {
        self.runtime
    }

    /// Sends one request and waits for the head of its answer. An exchange in which neither side
    /// sends anything for `idle` is given up.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
        last_sent: Option<LastSent>,
        idle: Duration,
    ) -> Result<Response<Incoming>, NoAnswer> {
        self.silence.begin(last_sent, idle);
        let Self { sender, connection, ended, silence, wakes, .. } = self;
        let mut answer = pin!(sender.try_send_request(request));
        let mut poll = |cx: &mut Context<'_>| {
            drive(connection, ended, cx);
            match answer.as_mut().poll(cx) {
                Poll::Ready(answer) => Poll::Ready(Some(answer)),
                Poll::Pending if silence.is_too_long(cx) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        };
        let answered = poll_fn(|cx| wakes.poll(cx, &mut poll));
        match answered.await {
            None => Err(NoAnswer::Silent),
            Some(Ok(response)) => Ok(response),
            Some(Err(mut failed)) => Err(match failed.take_message() {
                Some(request) => NoAnswer::Unsent(Box::new(request), failed.into_error()),
                None => NoAnswer::Broken(failed.into_error()),
            }),
        }
    }

    /// Returns the next frame of the answer whose body is `incoming`.
    pub(crate) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<NextFrame> {
        let Self { connection, ended, silence, wakes, .. } = self;
        wakes.poll(cx, |cx| {
            // Polling the body alone reads nothing from the socket.
            drive(connection, ended, cx);
            match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Ready(frame) => {
                    silence.received();
                    Poll::Ready(frame.map(|frame| frame.map_err(ReadError::Broken)))
                }
                Poll::Pending if silence.is_too_long(cx) => {
                    Poll::Ready(Some(Err(ReadError::Silent)))
                }
                Poll::Pending => Poll::Pending,
            }
        })
    }

    pub(crate) async fn next_frame(&mut self, incoming: &mut Incoming) -> NextFrame {
        poll_fn(|cx| self.poll_frame(incoming, cx)).await
    }

    /// Returns whether another request can be sent. A spare connection wakes no task.
    pub(crate) fn is_free(&mut self) -> bool {
        drive(&mut self.connection, &mut self.ended, &mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }

    /// Returns the bare connection after a switch of protocols, and any bytes that were already
    /// read from it.
    pub(crate) async fn into_stream(mut self: Box<Self>) -> hyper::Result<(TcpStream, Bytes)> {
        if !self.ended {
            poll_fn(|cx| self.connection.poll_without_shutdown(cx)).await?;
        }
        let parts = self.connection.into_parts();
        Ok((parts.io.into_inner(), parts.read_buf))
    }
}

/// Lets the connection read and write what it can. Its errors are reported to the task that waits
/// for the answer or reads the body.
fn drive(
    connection: &mut Connection<TokioIo<TcpStream>, RequestBody>,
    ended: &mut bool,
    cx: &mut Context<'_>,
) {
    if !*ended && connection.poll_without_shutdown(cx).is_ready() {
        *ended = true;
    }
}
