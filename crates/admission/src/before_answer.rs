//! Bounds what a peer may send before its answer to a request.
//!
//! HTTP/1.1 lets any number of interim answers (1xx) come first. hyper reads and drops them for as
//! long as they come, without a pause, so that one peer could keep a thread from all others.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const NO_LIMIT: usize = usize::MAX;
/// What may come before an answer, in heads of the largest size: interim answers, the head itself,
/// and what is read together with it.
const HEADS_MAX: usize = 4;

/// A connection on which little may be read until an answer has come.
#[derive(Debug)]
pub struct Bounded<S> {
    stream: S,
    before_answer: BeforeAnswer,
}

/// Says when an answer is awaited on a connection, and when it has come.
#[derive(Debug, Clone)]
pub struct BeforeAnswer {
    bytes_max: usize,
    left: Arc<AtomicUsize>,
}

impl<S> Bounded<S> {
    /// Returns a connection on which nothing is awaited yet. `bytes_max` needs room for the head of
    /// an answer and for what may be read with it.
    pub fn new(stream: S, bytes_max: usize) -> (Self, BeforeAnswer) {
        let left = Arc::new(AtomicUsize::new(NO_LIMIT));
        let before_answer = BeforeAnswer { bytes_max, left };
        (Self { stream, before_answer: before_answer.clone() }, before_answer)
    }

    /// Like [`Bounded::new`], for answers whose heads have at most this size.
    pub fn for_heads(stream: S, head_bytes_max: usize) -> (Self, BeforeAnswer) {
        Self::new(stream, head_bytes_max.saturating_mul(HEADS_MAX))
    }

    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl BeforeAnswer {
    /// A request is sent.
    pub fn begin(&self) {
        self.left.store(self.bytes_max, Ordering::Relaxed);
    }

    /// The head of its answer is there. What follows may be of any length.
    pub fn end(&self) {
        self.left.store(NO_LIMIT, Ordering::Relaxed);
    }

    fn take(&self, bytes: usize) -> io::Result<()> {
        let less = |left| match left {
            NO_LIMIT => Some(NO_LIMIT),
            left => usize::checked_sub(left, bytes),
        };
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other(format!(
                "more than {} bytes came before an answer",
                self.bytes_max
            ))),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.before_answer.take(buffer.filled().len() - before))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn only_what_comes_before_an_answer_is_bounded() {
        let (mut stream, before_answer) = Bounded::new(&[0; 100][..], 10);
        let mut ten = [0; 10];
        for _ in 0..3 {
            stream.read_exact(&mut ten).await.unwrap();
        }
        before_answer.begin();
        stream.read_exact(&mut ten).await.unwrap();
        before_answer.end();
        stream.read_exact(&mut ten).await.unwrap();
        before_answer.begin();
        stream.read_exact(&mut ten).await.unwrap();
        let error = stream.read_exact(&mut ten).await.unwrap_err();
        assert_eq!(error.to_string(), "more than 10 bytes came before an answer");
    }
}
