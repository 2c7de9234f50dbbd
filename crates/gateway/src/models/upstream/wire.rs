//! One HTTP/1.1 connection to a provider. As with workloads, the task that waits for an answer
//! drives its connection, so nothing has to be woken on the way.

use super::dial::Stream;
use super::pieces::Pieces;
use crate::wire::Wakes;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::runtime::{self, Handle};

pub(super) struct Wire {
    sender: SendRequest<Pieces>,
    connection: Connection<TokioIo<Stream>, Pieces>,
    ended: bool,
    wakes: Wakes,
    /// Where its socket is watched.
    runtime: runtime::Id,
}

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// Nothing was written: the request comes back.
    Unsent(Box<Request<Pieces>>),
    Broken(hyper::Error),
}

impl NoAnswer {
    pub(super) fn of(mut failed: TrySendError<Request<Pieces>>) -> Self {
        match failed.take_message() {
            Some(request) => Self::Unsent(Box::new(request)),
            None => Self::Broken(failed.into_error()),
        }
    }
}

impl Wire {
    pub(super) async fn open(stream: Stream, head_bytes_max: usize) -> hyper::Result<Box<Self>> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(head_bytes_max)
            .handshake(TokioIo::new(stream))
            .await?;
        let (wakes, runtime) = (Wakes::new(), Handle::current().id());
        Ok(Box::new(Self { sender, connection, ended: false, wakes, runtime }))
    }

    pub(super) const fn runtime(&self) -> runtime::Id {
        self.runtime
    }

    pub(super) async fn send(
        &mut self,
        request: Request<Pieces>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let Self { sender, connection, ended, wakes, .. } = self;
        let mut answer = pin!(sender.try_send_request(request));
        let mut poll = |cx: &mut Context<'_>| {
            drive(connection, ended, cx);
            answer.as_mut().poll(cx)
        };
        match poll_fn(|cx| wakes.poll(cx, &mut poll)).await {
            Ok(response) => Ok(response),
            Err(failed) => Err(NoAnswer::of(failed)),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self { connection, ended, wakes, .. } = self;
        wakes.poll(cx, |cx| {
            // Polling the body alone reads nothing from the socket.
            drive(connection, ended, cx);
            Pin::new(&mut *incoming).poll_frame(cx)
        })
    }

    /// Returns whether another request can be sent. A spare connection wakes no task.
    pub(super) fn is_free(&mut self) -> bool {
        drive(&mut self.connection, &mut self.ended, &mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }
}

fn drive(
    connection: &mut Connection<TokioIo<Stream>, Pieces>,
    ended: &mut bool,
    cx: &mut Context<'_>,
) {
    if !*ended && connection.poll_without_shutdown(cx).is_ready() {
        *ended = true;
    }
}
