//! Passes bytes in both directions unchanged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio_util::io::{InspectReader, InspectWriter};

/// Each connection holds two of these. A larger size makes one connection hardly faster, and many
/// expensive.
const BUFFER_BYTES: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both sides have ended, or one of them broke off.
    Done,
    Idle,
}

/// Passes bytes on until both sides have ended, or neither has sent anything for `idle` (or up to
/// twice as long). Each side is read only as fast as the other takes it.
pub(crate) async fn relay(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    server: &mut (impl AsyncRead + AsyncWrite + Unpin),
    idle: Duration,
) -> Ended {
    let moved = AtomicU64::new(0);
    let count = |_: &[u8]| {
        moved.fetch_add(1, Ordering::Relaxed);
    };
    let mut client = InspectWriter::new(InspectReader::new(client, count), count);
    let mut server = InspectWriter::new(InspectReader::new(server, count), count);
    let copy = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES);
    let silent = async {
        loop {
            let before = moved.load(Ordering::Relaxed);
            tokio::time::sleep(idle).await;
            if moved.load(Ordering::Relaxed) == before {
                return;
            }
        }
    };
    tokio::select! {
        // It does not matter which side broke off: both are closed now.
        _ = copy => Ended::Done,
        () = silent => Ended::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn each_side_may_end_before_the_other() {
        let (mut client, mut inner) = duplex(64);
        let (mut server, mut outer) = duplex(64);
        let relaying =
            tokio::spawn(
                async move { relay(&mut inner, &mut outer, Duration::from_secs(60)).await },
            );
        let big = vec![7; 100_000];
        let sent = big.clone();
        let sending = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.shutdown().await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, big);
        server.write_all(b"after the end").await.unwrap();
        drop(server);
        assert_eq!(sending.await.unwrap(), "after the end");
        assert_eq!(relaying.await.unwrap(), Ended::Done);
    }

    #[tokio::test]
    async fn silence_ends_it() {
        let (_client, mut inner) = duplex(64);
        let (_server, mut outer) = duplex(64);
        let ended = relay(&mut inner, &mut outer, Duration::from_millis(20)).await;
        assert_eq!(ended, Ended::Idle);
    }
}
