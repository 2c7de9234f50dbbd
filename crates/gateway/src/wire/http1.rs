//! An HTTP/1.1 connection that is driven by the task which waits for an answer.
//!
//! There is no task in between, so nothing has to be woken on the way, and dropping an answer closes
//! the connection at once.

use super::request_body::BoxError;
use super::reusable::Reusable;
use super::wakes::Wakes;
use admission::{BeforeAnswer, Bounded};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{self, Handle};
use tokio::task::coop;

pub(crate) struct Http1<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes> + 'static,
{
    sender: SendRequest<B>,
    connection: Connection<TokioIo<Bounded<S>>, B>,
    before_answer: BeforeAnswer,
    ended: bool,
    wakes: Wakes,
    /// Where its socket is watched.
    runtime: runtime::Id,
}

impl<S, B> Http1<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    pub(crate) async fn open(stream: S, head_bytes_max: usize) -> hyper::Result<Self> {
        let (stream, before_answer) = Bounded::for_heads(stream, head_bytes_max);
        let (sender, connection) =
            Builder::new().max_buf_size(head_bytes_max).handshake(TokioIo::new(stream)).await?;
        let (wakes, runtime) = (Wakes::new(), Handle::current().id());
        Ok(Self { sender, connection, before_answer, ended: false, wakes, runtime })
    }

    /// Sends one request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, TrySendError<Request<B>>> {
        let Self { sender, connection, before_answer, ended, wakes, .. } = self;
        before_answer.begin();
        let mut answer = pin!(sender.try_send_request(request));
        let mut poll = |cx: &mut Context<'_>| {
            drive(connection, ended, cx);
            answer.as_mut().poll(cx)
        };
        let answered = poll_fn(|cx| wakes.poll(cx, &mut poll)).await;
        before_answer.end();
        answered
    }

    /// Returns the next frame of the answer whose body is `incoming`.
    pub(crate) fn poll_frame(
        &mut self,
        incoming: &mut Incoming,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        // One read can bring a hundred thousand frames of a byte each. Without this, the task would
        // pass all of them on before any other task of its thread has its turn.
        let turn = ready!(coop::poll_proceed(cx));
        let Self { connection, ended, wakes, .. } = self;
        let frame = wakes.poll(cx, |cx| {
            // Polling the body alone reads nothing from the socket.
            drive(connection, ended, cx);
            Pin::new(&mut *incoming).poll_frame(cx)
        });
        if frame.is_ready() {
            turn.made_progress();
        }
        frame
    }

    /// Returns the bare connection after a switch of protocols, and any bytes that were already
    /// read from it.
    pub(crate) async fn into_stream(mut self) -> hyper::Result<(S, Bytes)> {
        if !self.ended {
            poll_fn(|cx| self.connection.poll_without_shutdown(cx)).await?;
        }
        let parts = self.connection.into_parts();
        Ok((parts.io.into_inner().into_inner(), parts.read_buf))
    }
}

impl<S, B> Reusable for Http1<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    fn runtime(&self) -> runtime::Id {
        self.runtime
    }

    fn is_free(&mut self) -> bool {
        // A spare connection wakes no task.
        drive(&mut self.connection, &mut self.ended, &mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }
}

/// Lets the connection read and write what it can. Its errors are reported to the task that waits
/// for the answer or reads the body.
fn drive<S, B>(
    connection: &mut Connection<TokioIo<Bounded<S>>, B>,
    ended: &mut bool,
    cx: &mut Context<'_>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    if !*ended && connection.poll_without_shutdown(cx).is_ready() {
        *ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn an_answer_in_many_small_frames_lets_other_tasks_have_their_turn() {
        const FRAMES: usize = 10_000;
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut http1 = Http1::<_, Empty<Bytes>>::open(near, 1 << 20).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let body = format!("{head}{}0\r\n\r\n", "1\r\na\r\n".repeat(FRAMES));
        let request = Request::get("/").body(Empty::new()).unwrap();
        let (answer, written) = tokio::join!(http1.send(request), far.write_all(body.as_bytes()));
        written.unwrap();
        let mut incoming = answer.unwrap().into_body();
        let (mut frames, mut turns) = (0, 0);
        let all = poll_fn(|cx| {
            turns += 1;
            while let Some(frame) = ready!(http1.poll_frame(&mut incoming, cx)) {
                frame.unwrap();
                frames += 1;
            }
            Poll::Ready(frames)
        });
        assert_eq!(all.await, FRAMES);
        assert!(turns > FRAMES / 1000, "{turns}");
    }
}
