//! Bodies of answers.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// How many bytes are read from a file at once.
pub(crate) const PIECE: u64 = 512 << 10;

pub(crate) fn of(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn empty() -> Body {
    of(Bytes::new())
}

/// Reads the next piece of a file, from `at` on and up to `end` at most.
pub(crate) fn read(file: &File, at: u64, end: u64) -> io::Result<Bytes> {
    let length = usize::try_from((end - at).min(PIECE)).unwrap_or_default();
    let mut piece = vec![0; length];
    // If a sandbox has truncated the file, the announced bytes cannot be sent any more.
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

/// Sends `first`, and then the bytes of a file from `at` to `end`.
pub(crate) fn of_file(first: Bytes, file: File, at: u64, end: u64) -> Body {
    let file = Arc::new(file);
    let rest = stream::unfold((Some(first), at), move |(first, at)| {
        let file = Arc::clone(&file);
        async move {
            if let Some(first) = first {
                return Some((Ok(Frame::data(first)), (None, at)));
            }
            if at >= end {
                return None;
            }
            let read = tokio::task::spawn_blocking(move || read(&file, at, end)).await;
            match read.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(piece) => {
                    let next = at + piece.len() as u64;
                    Some((Ok(Frame::data(piece)), (None, next)))
                }
                Err(error) => Some((Err(error), (None, end))),
            }
        }
    });
    StreamBody::new(rest).boxed_unsync()
}

/// Keeps `guard` until the body is sent. Aborts the body when `outlived` completes, or when the
/// reader takes nothing for as long as `stall`: then what `guard` holds is free for others although
/// the connection is still open.
pub(crate) fn guarded<G: Send + 'static>(
    body: Body,
    guard: G,
    stall: Duration,
    outlived: impl FnOnce() -> BoxFuture<'static, ()>,
) -> Body {
    if body.size_hint().exact().is_some() {
        // It is in memory, so the guard is not needed any more.
        return body;
    }
    let (to, from) = mpsc::channel(1);
    let (whole, outlived) = (Arc::new(AtomicBool::new(false)), outlived());
    let sent = Arc::clone(&whole);
    tokio::spawn(async move {
        let _guard = guard;
        let sending = send(body, &to, stall);
        let error = tokio::select! {
            sending = sending => sending.err(),
            () = outlived => Some(io::ErrorKind::PermissionDenied),
        };
        sent.store(error.is_none(), Ordering::Release);
    });
    let frames = stream::unfold((from, whole), |(mut from, whole)| async move {
        let frame = match from.recv().await {
            Some(frame) => frame,
            None if whole.load(Ordering::Acquire) => return None,
            // This tells the reader that something is missing.
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        };
        Some((frame, (from, whole)))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Passes a body on, piece by piece.
async fn send(
    mut body: Body,
    to: &mpsc::Sender<io::Result<Frame<Bytes>>>,
    stall: Duration,
) -> Result<(), io::ErrorKind> {
    loop {
        let place = tokio::time::timeout(stall, to.reserve()).await;
        let place = place.map_err(|_| io::ErrorKind::TimedOut)?;
        // The reader is gone.
        let Ok(place) = place else { return Ok(()) };
        match body.frame().await {
            Some(frame) => {
                let failed = frame.is_err();
                place.send(frame);
                if failed {
                    return Ok(());
                }
            }
            None => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endless() -> Body {
        let pieces = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"piece"))));
        StreamBody::new(pieces).boxed_unsync()
    }

    fn never() -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_on_keeps_nothing() {
        let held = Arc::new(());
        let stall = Duration::from_secs(60);
        let mut body = guarded(endless(), Arc::clone(&held), stall, never);
        // A slow reader is not cut off.
        for _ in 0..5 {
            tokio::time::sleep(stall / 2).await;
            assert!(body.frame().await.unwrap().is_ok());
        }
        assert_eq!(Arc::strong_count(&held), 2);
        tokio::time::sleep(stall * 2).await;
        assert_eq!(Arc::strong_count(&held), 1, "it holds its place, and reads nothing");
        let mut rest = Vec::new();
        while let Some(frame) = body.frame().await {
            rest.push(frame.is_ok());
            if rest.last() == Some(&false) {
                break;
            }
        }
        assert_eq!(rest.last(), Some(&false), "the reader takes a part for the whole");
    }

    #[tokio::test]
    async fn a_body_that_is_read_arrives_whole() {
        let pieces = [b"a".as_slice(), b"b", b"c"].map(|piece| Ok(Frame::data(piece.into())));
        let body = StreamBody::new(stream::iter(pieces)).boxed_unsync();
        let held = Arc::new(());
        let body = guarded(body, Arc::clone(&held), Duration::from_secs(60), never);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
    }

    #[tokio::test]
    async fn a_key_that_ends_breaks_the_body_off() {
        let now = || -> BoxFuture<'static, ()> { Box::pin(std::future::ready(())) };
        let body = guarded(endless(), (), Duration::from_secs(60), now);
        assert!(body.collect().await.is_err());
    }
}
