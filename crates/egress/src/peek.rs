//! What a connection turns out to be, by its first bytes.

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
    /// Requests in the clear.
    Http,
    /// Neither, for sure.
    Other,
    /// It may be the one or the other, and cannot be read for sure.
    Odd,
    /// Nothing has come.
    Silence,
}

/// A method that is longer is none.
const METHOD_BYTES_MAX: usize = 64;

/// `None` while more bytes could decide otherwise.
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
    // Servers differ in what they take for a request line, so anything with the name in it is one.
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return (bytes.len() > head_bytes_max).then_some(Seen::Odd);
    };
    let is_http = line[..end].windows(5).any(|part| part.eq_ignore_ascii_case(b"http/"));
    Some(if is_http { Seen::Http } else { Seen::Other })
}

/// Reads until it is clear, or until the client has said nothing for long enough. What was read is
/// in `head`. Fails when it does not become clear in time.
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

/// The same for one that has to say something.
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

/// One more piece. An end is clear as well: what is not whole by then never will be.
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

/// A connection that can be refused so that the other end sees it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Makes closing it a reset, where it can be one.
    fn reset(&self);
}

impl Stream for TcpStream {
    fn reset(&self) {
        // One that is gone already needs no reset.
        let _ = socket2::SockRef::from(self).set_linger(Some(Duration::ZERO));
    }
}

impl Stream for hyper_util::rt::TokioIo<hyper::upgrade::Upgraded> {
    fn reset(&self) {}
}

/// A connection of which some bytes were read already.
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
        /// What is once decided is not decided otherwise when more comes, or a slow sender could
        /// choose.
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
