//! Finds out what a connection is from its first bytes.

use crate::hello::{self, Hello};
use crate::settings::Limits;
use bytes::{Buf, BytesMut};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Tls(Hello),
    /// Unencrypted requests.
    Http,
    /// Certainly neither.
    Other,
    /// It could be either, and is ambiguous.
    Odd,
    /// Nothing has arrived.
    Silence,
}

/// No method is longer.
const METHOD_BYTES_MAX: usize = 64;

/// Classifies the first bytes. Returns `None` while more bytes could change the result.
pub(crate) fn classify(bytes: &[u8], head_bytes_max: usize) -> Option<Seen> {
    match hello::read(bytes) {
        hello::Read::Hello(hello) => return Some(Seen::Tls(hello)),
        hello::Read::Odd => return Some(Seen::Odd),
        hello::Read::More => return None,
        hello::Read::NotTls => {}
    }
    let begin = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
    let Some(begin) = begin else {
        return (bytes.len() > head_bytes_max).then_some(Seen::Odd);
    };
    let line = &bytes[begin..];
    let is_method = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c);
    let method = line.iter().position(|byte| !is_method(byte)).unwrap_or(line.len());
    if method == 0 || method > METHOD_BYTES_MAX {
        return Some(Seen::Other);
    }
    if line.get(method).is_some_and(|byte| !is_space(*byte)) {
        return Some(Seen::Other);
    }
    // Servers differ in what they accept as a request line, so any line that contains the name
    // counts.
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return (bytes.len() > head_bytes_max).then_some(Seen::Odd);
    };
    let is_http = line[..end].windows(5).any(|part| part.eq_ignore_ascii_case(b"http/"));
    Some(if is_http { Seen::Http } else { Seen::Other })
}

/// Reads until the kind is clear, or until the client has been silent for long enough. What was
/// read is in `head`. Fails if the kind does not become clear in time.
pub(crate) async fn peek(
    stream: &mut (impl AsyncRead + Unpin),
    head: &mut BytesMut,
    limits: &Limits,
) -> io::Result<Seen> {
    let first = tokio::time::timeout(limits.silence, more(stream, head, limits.head_bytes)).await;
    match first {
        Ok(Ok(Some(seen))) => Ok(seen),
        Ok(Err(error)) => Err(error),
        Err(_) if head.is_empty() => Ok(Seen::Silence),
        Ok(Ok(None)) | Err(_) => insist(stream, head, limits).await,
    }
}

/// Like [`peek`], for a client that has to say something.
pub(crate) async fn insist(
    stream: &mut (impl AsyncRead + Unpin),
    head: &mut BytesMut,
    limits: &Limits,
) -> io::Result<Seen> {
    let whole = async {
        loop {
            if let Some(seen) = more(stream, head, limits.head_bytes).await? {
                return Ok(seen);
            }
        }
    };
    tokio::time::timeout(limits.hello, whole).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Reads one more piece. The end of the stream also decides: what is incomplete then stays so.
pub(crate) async fn more(
    stream: &mut (impl AsyncRead + Unpin),
    head: &mut BytesMut,
    head_bytes_max: usize,
) -> io::Result<Option<Seen>> {
    if stream.read_buf(head).await? == 0 {
        return Ok(Some(Seen::Other));
    }
    Ok(classify(head, head_bytes_max))
}

/// A connection that can be refused in a way that the other side notices.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes closing it a reset, if it can be one.
    fn reset(&self);
}

impl Stream for TcpStream {
    fn reset(&self) {
        // If it is already gone, it needs no reset.
        let _ = socket2::SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl Stream for hyper_util::rt::TokioIo<hyper::upgrade::Upgraded> {
    fn reset(&self) {}
}

/// A connection from which some bytes were already read; they are read again first.
#[derive(Debug)]
pub(crate) struct Replay<S> {
    head: BytesMut,
    stream: S,
}

impl<S> Replay<S> {
    pub(crate) const fn new(head: BytesMut, stream: S) -> Self {
        Self { head, stream }
    }
}

impl<S: Stream> Stream for Replay<S> {
    fn reset(&self) {
        self.stream.reset();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.head.len().min(buffer.remaining());
        buffer.put_slice(&self.head[..count]);
        self.head.advance(count);
        if self.head.is_empty() {
            self.head = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replay<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(bytes: &[u8]) -> Option<Seen> {
        classify(bytes, 1024)
    }

    #[test]
    fn requests_are_known_however_they_begin() {
        let requests = [
            "GET / HTTP/1.1\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\n",
            " \tGET / HTTP/1.0\n",
            "GET\t/\tHTTP/1.1\r\nHost: a\r\n",
            "get / http/1.1\r\n",
            "X-ODD! /a b c HTTP/1.1\r\n",
            "GET / \rHTTP/1.1\r\n",
            "GET /\u{e9} HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ];
        for request in requests {
            assert_eq!(of(request.as_bytes()), Some(Seen::Http), "{request:?}");
            let end = request.find('\n').unwrap();
            assert_ne!(of(&request.as_bytes()[..end.min(3)]), Some(Seen::Other), "{request:?}");
        }
        for other in
            ["SSH-2.0-x\r\n", "EHLO me\r\n", "\0\0\0\x08\x04\x16\x2f", "*1\r\n", "\x16\x02", "{}"]
        {
            assert_eq!(of(other.as_bytes()), Some(Seen::Other), "{other:?}");
        }
        assert_eq!(of(b""), None);
        assert_eq!(of(b"GET / HT"), None);
        assert_eq!(of(&[b"GET ".to_vec(), vec![b'a'; 1100]].concat()), Some(Seen::Odd));
        assert_eq!(of(&[b'\n'; 1100]), Some(Seen::Odd));
    }

    proptest! {
        /// More bytes never change a decision, or a slow sender could choose it.
        #[test]
        fn more_bytes_change_nothing(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(b'G'), Just(b' '), Just(b'\n')],
                0..40,
            ),
            tail in "( / HTTP/1.1\r\n)?.{0,20}",
        ) {
            let whole = [&bytes[..], tail.as_bytes()].concat();
            if let Some(seen) = of(&bytes) {
                prop_assert_eq!(of(&whole), Some(seen));
            }
        }
    }
}
