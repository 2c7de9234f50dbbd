//! Whether an HTTP/2 host lets a request turn into a WebSocket (RFC 8441), which it says in its first
//! frame. Hyper knows this too, but tells only the task that owns the connection, and not when the
//! frame has arrived.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebSockets {
    /// The host has not said anything yet.
    Unknown,
    Taken,
    Refused,
}

/// A connection whose first frame is read along with whoever reads it.
pub(super) struct Overheard<S> {
    stream: S,
    /// `None` as soon as the frame is known.
    first: Option<First>,
}

struct First {
    bytes: Vec<u8>,
    tell: watch::Sender<WebSockets>,
}

impl<S> Overheard<S> {
    pub(super) fn new(stream: S) -> (Self, watch::Receiver<WebSockets>) {
        let (tell, told) = watch::channel(WebSockets::Unknown);
        (Self { stream, first: Some(First { bytes: Vec::new(), tell }) }, told)
    }

    fn hear(&mut self, more: &[u8]) {
        let Some(first) = &mut self.first else { return };
        first.bytes.extend_from_slice(more);
        let said = read(&first.bytes);
        if said != WebSockets::Unknown {
            first.tell.send_replace(said);
        }
        if said != WebSockets::Unknown || more.is_empty() {
            self.first = None;
        }
    }
}

const HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// The largest frame that a host may send unless it is told otherwise.
const FRAME_BYTES_MAX: usize = 16 << 10;

/// Reads the beginning of what a host says. Anything but settings is no HTTP/2, which hyper finds
/// out for itself.
fn read(bytes: &[u8]) -> WebSockets {
    let Some((&[a, b, c, kind, ..], payload)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return WebSockets::Unknown;
    };
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if kind != SETTINGS || length > FRAME_BYTES_MAX {
        return WebSockets::Refused;
    }
    let Some(settings) = payload.get(..length) else { return WebSockets::Unknown };
    let mut settings = settings.chunks_exact(6).map(|setting| {
        let (name, value) = setting.split_at(2);
        (u16::from_be_bytes([name[0], name[1]]), value)
    });
    // If it is given twice, the last one counts.
    match settings.rfind(|(name, _)| *name == ENABLE_CONNECT_PROTOCOL) {
        Some((_, [0, 0, 0, 1])) => WebSockets::Taken,
        _ => WebSockets::Refused,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.hear(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
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

    fn frame(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let length = u8::try_from(settings.len() * 6).unwrap();
        let mut frame = vec![0, 0, length, kind, 0, 0, 0, 0, 0];
        for (name, value) in settings {
            frame.extend(name.to_be_bytes());
            frame.extend(value.to_be_bytes());
        }
        frame
    }

    #[track_caller]
    fn check(bytes: &[u8], wanted: WebSockets) {
        assert_eq!(read(bytes), wanted);
        // In pieces, it is never something else before.
        let decided = (0..bytes.len()).map(|length| read(&bytes[..length]));
        assert!(decided.into_iter().all(|said| said == WebSockets::Unknown || said == wanted));
    }

    #[test]
    fn the_first_frame_says_it() {
        check(&frame(4, &[(3, 100), (8, 1)]), WebSockets::Taken);
        check(&frame(4, &[(8, 1), (4, 65_535), (8, 0)]), WebSockets::Refused);
        check(&frame(4, &[(3, 100)]), WebSockets::Refused);
        check(&frame(4, &[]), WebSockets::Refused);
        check(&frame(4, &[(8, 2)]), WebSockets::Refused);
        check(&frame(6, &[(8, 1)]), WebSockets::Refused);
        check(b"HTTP/1.1 400 Bad Request\r\n\r\n", WebSockets::Refused);
        assert_eq!(read(&[0xff, 0xff, 0xff, 4, 0, 0, 0, 0, 0]), WebSockets::Refused);
    }

    #[tokio::test]
    async fn a_host_that_ends_before_it_says_it_is_not_waited_for() {
        use tokio::io::AsyncReadExt as _;
        let (mut stream, mut told) = Overheard::new(&b"\0\0\x06\x04"[..]);
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"\0\0\x06\x04");
        assert!(told.wait_for(|said| *said != WebSockets::Unknown).await.is_err());
    }
}
