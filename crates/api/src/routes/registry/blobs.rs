//! Reads blobs, whole or in part.

use super::answers::{DIGEST, empty, header_of};
use super::error::Refusal;
use super::session::Session;
use crate::http::streams::OpenStream;
use auth::Denied;
use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::io::{self, SeekFrom};
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Bytes that are read from disk at once.
const PIECE: usize = 256 << 10;

pub(super) async fn get(
    session: Session,
    digest: String,
    parts: &Parts,
) -> Result<Response, Refusal> {
    let place = session.located.place.clone();
    let blob = session.registry.blob(place, digest.clone()).await?;
    let range = match range(&parts.headers, blob.size) {
        Ok(range) => range,
        Err(()) => {
            let why = "the blob has no such range";
            let refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, "RANGE_INVALID", why);
            let all = header_of(&format!("bytes */{}", blob.size));
            return Err(refusal.with(header::CONTENT_RANGE, all));
        }
    };
    let (status, from, length) = match range {
        Some((from, to)) => (StatusCode::PARTIAL_CONTENT, from, to - from + 1),
        None => (StatusCode::OK, 0, blob.size),
    };
    let mut response = empty(status);
    if parts.method == Method::GET {
        let mut file = File::from_std(blob.file);
        file.set_max_buf_size(PIECE);
        file.seek(SeekFrom::Start(from)).await.map_err(unreadable)?;
        *response.body_mut() = read(&session, file, length)?;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(DIGEST, header_of(&digest));
    if status == StatusCode::PARTIAL_CONTENT {
        let text = format!("bytes {from}-{}/{}", from + length - 1, blob.size);
        headers.insert(header::CONTENT_RANGE, header_of(&text));
    }
    Ok(response)
}

pub(super) async fn remove(session: &Session, digest: String) -> Result<Response, Refusal> {
    session.require_own()?;
    session.registry.remove_blob(session.located.place.clone(), digest).await?;
    Ok(empty(StatusCode::ACCEPTED))
}

fn unreadable(error: io::Error) -> Refusal {
    tracing::error!(%error, "a blob cannot be read");
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN", "the blob cannot be read now")
}

/// Returns the first and last byte of the requested range; `None` means the whole blob. Several
/// ranges, and anything that is not a range, are ignored.
fn range(headers: &HeaderMap, size: u64) -> Result<Option<(u64, u64)>, ()> {
    let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some((from, to)) =
        text.and_then(|text| text.strip_prefix("bytes=")).and_then(|text| text.split_once('-'))
    else {
        return Ok(None);
    };
    let last = size.checked_sub(1).ok_or(())?;
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) if from <= to => (from, to.min(last)),
        (Ok(from), Err(_)) if to.is_empty() => (from, last),
        (Err(_), Ok(bytes)) if from.is_empty() => (size.saturating_sub(bytes), last),
        _ => return Ok(None),
    };
    if from > last || from > to { Err(()) } else { Ok(Some((from, to))) }
}

/// A blob that is being sent to the caller.
struct Reading {
    file: File,
    left: u64,
    outlived: BoxFuture<'static, Denied>,
    _open: OpenStream,
}

fn read(session: &Session, file: File, left: u64) -> Result<Body, Refusal> {
    let caller = &session.caller;
    let workspace = &session.context.member.workspace;
    let _open = caller.app.streams.take(workspace, caller.identity.holder())?;
    let (auth, ticket) = (caller.app.auth.clone(), Arc::clone(&session.ticket));
    let outlived = Box::pin(async move { auth.outlived(&ticket).await });
    let reading = Reading { file, left, outlived, _open };
    Ok(Body::from_stream(stream::unfold(Some(reading), |reading| async { next(reading?).await })))
}

async fn next(mut reading: Reading) -> Option<(io::Result<Bytes>, Option<Reading>)> {
    if reading.left == 0 {
        return None;
    }
    let wanted = usize::try_from(reading.left).unwrap_or(PIECE).min(PIECE);
    let mut piece = BytesMut::with_capacity(wanted);
    let Reading { file, outlived, .. } = &mut reading;
    let mut part = file.take(wanted as u64);
    let read = tokio::select! {
        biased;
        denied = outlived => Err(io::Error::other(denied)),
        read = part.read_buf(&mut piece) => read,
    };
    match read {
        Ok(0) => Some((Err(io::ErrorKind::UnexpectedEof.into()), None)),
        Ok(bytes) => {
            reading.left -= bytes as u64;
            Some((Ok(piece.freeze()), Some(reading)))
        }
        Err(error) => Some((Err(error), None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_the_blob() {
        let asked = |text: &str, size: u64| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, text.parse().unwrap());
            range(&headers, size)
        };
        assert_eq!(asked("bytes=0-3", 10), Ok(Some((0, 3))));
        assert_eq!(asked("bytes=4-", 10), Ok(Some((4, 9))));
        assert_eq!(asked("bytes=-3", 10), Ok(Some((7, 9))));
        assert_eq!(asked("bytes=-30", 10), Ok(Some((0, 9))));
        assert_eq!(asked("bytes=8-99999999999999999999", 10), Ok(None));
        assert_eq!(asked("bytes=8-99", 10), Ok(Some((8, 9))));
        assert_eq!(asked("bytes=10-", 10), Err(()));
        assert_eq!(asked("bytes=-0", 10), Err(()));
        assert_eq!(asked("bytes=0-", 0), Err(()));
        assert_eq!(asked("bytes=5-3", 10), Ok(None));
        assert_eq!(asked("lines=0-3", 10), Ok(None));
        assert_eq!(range(&HeaderMap::new(), 10), Ok(None));
    }
}
