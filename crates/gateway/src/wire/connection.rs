//! One HTTP/1.1 connection to a workload, which is given up when the workload is silent.

use super::http1::Http1;
use super::request_body::RequestBody;
use super::reusable::Reusable;
use super::silence::{LastSent, Silence};
use crate::settings::Settings;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use hyper::body::Incoming;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime;

pub(crate) struct Wire {
    http1: Http1<TcpStream, RequestBody>,
    silence: Silence,
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
        let http1 = Http1::open(stream, settings.head_bytes_max).await?;
        Ok(Box::new(Self { http1, silence: Silence::new(settings.answer_idle) }))
    }

    /// Sends one request and waits for the head of its answer. An exchange in which neither side
    /// sends anything for `idle` is given up.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
        last_sent: Option<LastSent>,
        idle: Duration,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let Self { http1, silence } = self;
        silence.begin(last_sent, idle);
        let mut answer = pin!(http1.send(request));
        let answered = poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if silence.is_too_long(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
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

    /// Returns the next frame of the answer whose body is `incoming`.
    pub(crate) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<NextFrame> {
        let Self { http1, silence } = self;
        match http1.poll_frame(incoming, cx) {
            Poll::Ready(frame) => {
                silence.received();
                Poll::Ready(frame.map(|frame| frame.map_err(ReadError::Broken)))
            }
            Poll::Pending if silence.is_too_long(cx) => Poll::Ready(Some(Err(ReadError::Silent))),
            Poll::Pending => Poll::Pending,
        }
    }

    pub(crate) async fn next_frame(&mut self, incoming: &mut Incoming) -> NextFrame {
        poll_fn(|cx| self.poll_frame(incoming, cx)).await
    }

    /// Returns the bare connection after a switch of protocols, and any bytes that were already
    /// read from it.
    pub(crate) async fn into_stream(self: Box<Self>) -> hyper::Result<(TcpStream, Bytes)> {
        self.http1.into_stream().await
    }
}

impl Reusable for Wire {
    fn runtime(&self) -> runtime::Id {
        self.http1.runtime()
    }

    fn is_free(&mut self) -> bool {
        self.http1.is_free()
    }
}
