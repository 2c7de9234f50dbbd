//! Reads what a client still sends after the HTTP library has refused the head of its request.
//!
//! The library answers a head that is too large or malformed, and drops the connection. While bytes
//! of the client are unread or still under way, the kernel then resets the connection, and the
//! client fails to send the rest before it has looked at the answer. So the stream is taken back
//! from the library, and the rest is read and discarded for a while.

use crate::Linger;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::oneshot;

/// A stream that is handed to its [`LingeringClose`] when it is dropped.
#[derive(Debug)]
pub struct LingeringStream<S> {
    /// `None` only while it is being dropped.
    open: Option<(S, oneshot::Sender<S>)>,
}

/// Gets the stream back after the connection over it has ended.
#[derive(Debug)]
pub struct LingeringClose<S> {
    dropped: oneshot::Receiver<S>,
    linger: Linger,
}

impl Linger {
    /// Wraps the stream of a connection. The other half is for [`LingeringClose::after`].
    pub fn over_stream<S>(&self, stream: S) -> (LingeringStream<S>, LingeringClose<S>) {
        let (sender, dropped) = oneshot::channel();
        let stream = LingeringStream { open: Some((stream, sender)) };
        (stream, LingeringClose { dropped, linger: self.clone() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> LingeringClose<S> {
    /// Reads the rest if the connection, which must have been dropped, ended with the refusal of a
    /// head.
    pub async fn after(mut self, ended: &(dyn Error + Send + Sync + 'static)) {
        let is_refusal = ended.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse);
        // A request that has turned into a tunnel has its stream still.
        if let Ok(stream) = self.dropped.try_recv()
            && is_refusal
        {
            self.linger.close(stream).await;
        }
    }
}

impl Linger {
    /// Tells the client that no more comes, and reads until it has closed its side too.
    async fn close<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        // If there are too many of them, senders have to live with the reset.
        let Ok(_place) = self.places.try_acquire() else { return };
        let rest = async {
            stream.shutdown().await?;
            let mut discarded = [0; 4096];
            while stream.read(&mut discarded).await? > 0 {}
            io::Result::Ok(())
        };
        // A sender that takes longer than that is cut off.
        let _ = tokio::time::timeout(self.time, rest).await;
    }
}

impl<S> LingeringStream<S> {
    fn stream(&mut self) -> io::Result<&mut S> {
        self.open.as_mut().map(|(stream, _)| stream).ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl<S> Drop for LingeringStream<S> {
    fn drop(&mut self) {
        if let Some((stream, close)) = self.open.take() {
            // Nobody waits for the stream of a tunnel.
            let _ = close.send(stream);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.stream()?).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream()?).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.stream()?).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.open.as_ref().is_some_and(|(stream, _)| stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream()?).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream()?).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::duplex;

    const TIME: Duration = Duration::from_secs(5);

    /// Returns the error of a connection whose client sent nonsense.
    async fn refusal() -> hyper::Error {
        let (mut client, server) = duplex(1024);
        client.write_all(b"nonsense\r\n\r\n").await.unwrap();
        let service = hyper::service::service_fn(|_| async {
            Ok::<_, io::Error>(http::Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
        });
        let server = hyper_util::rt::TokioIo::new(server);
        let builder = hyper::server::conn::http1::Builder::new();
        builder.serve_connection(server, service).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_client_may_send_the_rest_for_a_while() {
        let linger = Linger::new(TIME, 1);
        let refusal = refusal().await;
        let (mut client, server) = duplex(10);
        let (stream, close) = linger.over_stream(server);
        drop(stream);
        let send = async {
            client.write_all(&[0; 10_000]).await.unwrap();
            // It never closes its side.
            client
        };
        let ((), mut client) = tokio::join!(close.after(&refusal), send);
        assert_eq!(linger.places.available_permits(), 1);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        client.write_all(&[0]).await.unwrap_err();
    }

    #[tokio::test]
    async fn nobody_waits_for_a_client_that_was_not_refused_or_a_tunnel() {
        for (is_tunnel, places, ended) in [
            (false, 1, Box::new(io::Error::other("it went away")) as Box<dyn Error + Send + Sync>),
            (true, 1, Box::new(refusal().await)),
            (false, 0, Box::new(refusal().await)),
        ] {
            let (_client, server) = duplex(10);
            let (stream, close) = Linger::new(Duration::MAX, places).over_stream(server);
            let _tunnel = is_tunnel.then_some(stream);
            close.after(ended.as_ref()).await;
        }
    }
}
