//! Bodies of answers.

use crate::access::Wait;
use bytes::Bytes;
use futures_util::stream;
use http_body::{Body as _, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Bytes that are read from a file at once.
pub(crate) const PIECE: u64 = 512 << 10;

pub(crate) fn of(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn empty() -> Body {
    of(Bytes::new())
}

/// Reads a piece of a file that ends before `end`.
pub(crate) fn read(file: &File, at: u64, end: u64) -> io::Result<Bytes> {
    let length = usize::try_from((end - at).min(PIECE)).unwrap_or_default();
    let mut piece = vec![0; length];
    // A sandbox may have cut it shorter; what was announced cannot be sent any more.
    file.read_exact_at(&mut piece, at)?;
    Ok(piece.into())
}

/// Bytes of a file from `at` to `end`, after those that were read before.
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

/// Keeps `guard` until the body was sent or dropped, and breaks it off when `outlived` says so.
pub(crate) fn guarded<G: Send + 'static>(
    body: Body,
    guard: G,
    outlived: impl FnOnce() -> Wait<'static, ()>,
) -> Body {
    if body.size_hint().exact().is_some() {
        // It is in memory, and what it took was given back.
        return body;
    }
    let state = (body, guard, outlived());
    let frames = stream::unfold(state, |(mut body, guard, mut outlived)| async move {
        let frame = tokio::select! {
            () = &mut outlived => Some(Err(io::ErrorKind::PermissionDenied.into())),
            frame = body.frame() => frame,
        };
        frame.map(|frame| (frame, (body, guard, outlived)))
    });
    StreamBody::new(frames).boxed_unsync()
}
