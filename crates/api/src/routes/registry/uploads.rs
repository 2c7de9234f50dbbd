//! Uploads of blobs: in one request, in pieces, or by mounting a blob of another repository.

use super::answers::{DIGEST, empty, header_of};
use super::error::{Refusal, range};
use super::path::{Name, parameter};
use super::session::{Session, locate};
use auth::Denied;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use control::Context;
use control::registry::RegistryFault;
use http::request::Parts;
use http::{HeaderName, StatusCode, header};
use http_body_util::BodyExt;
use std::io;
use std::ops::Range;
use std::pin::pin;
use tokio::sync::mpsc;
use types::{Scope, Verb};

const UPLOAD: HeaderName = HeaderName::from_static("docker-upload-uuid");
/// Pieces buffered between the network and the disk.
const PIECES: usize = 16;

pub(super) async fn begin(
    session: &Session,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    session.require_own()?;
    if let Some(digest) = parameter(parts, "mount")
        && mount(session, parts, &digest).await?
    {
        return Ok(created(session, &digest));
    }
    let place = session.located.place.clone();
    let id = session.registry.begin_upload(place.clone()).await?;
    let Some(digest) = parameter(parts, "digest") else {
        return Ok(accepted(session, &id, 0));
    };
    let whole = async {
        receive(session, &id, None, body).await?;
        let finished = session.registry.finish_upload(place.clone(), id.clone(), digest.clone());
        Ok::<_, Refusal>(finished.await?)
    };
    if let Err(refusal) = whole.await {
        // Nobody was told the upload's id. If it is already gone, there is nothing to cancel.
        return match session.registry.cancel_upload(place, id.clone()).await {
            Ok(()) | Err(RegistryFault::NoUpload) => Err(refusal),
            Err(fault) => Err(fault.into()),
        };
    }
    Ok(created(session, &digest))
}

/// Mounts a blob of another repository that the caller may read. A repository that the caller may
/// not read counts as missing.
async fn mount(session: &Session, parts: &Parts, digest: &str) -> Result<bool, Refusal> {
    let Some(from) = parameter(parts, "from").and_then(|from| Name::parse(&from)) else {
        return Ok(false);
    };
    let Ok(member) = session.caller.member_at(&from, &[Scope::Images(Verb::Get)]) else {
        return Ok(false);
    };
    let context = Context { control: session.context.control.clone(), member };
    let Ok((_, located)) = locate(&context, &from).await else { return Ok(false) };
    let place = session.located.place.clone();
    Ok(session.registry.mount(place, located.place, digest.to_owned()).await?)
}

pub(super) async fn append(
    session: &Session,
    id: String,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    session.require_own()?;
    let size = receive_piece(session, &id, parts, body).await?;
    Ok(accepted(session, &id, size))
}

pub(super) async fn finish(
    session: &Session,
    id: String,
    parts: &Parts,
    body: Body,
) -> Result<Response, Refusal> {
    session.require_own()?;
    let digest = parameter(parts, "digest").ok_or(RegistryFault::BadDigest)?;
    receive_piece(session, &id, parts, body).await?;
    let place = session.located.place.clone();
    session.registry.finish_upload(place, id, digest.clone()).await?;
    Ok(created(session, &digest))
}

pub(super) async fn progress(session: &Session, id: String) -> Result<Response, Refusal> {
    let size = session.registry.uploaded(session.located.place.clone(), id.clone()).await?;
    let mut response = accepted(session, &id, size);
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

pub(super) async fn cancel(session: &Session, id: String) -> Result<Response, Refusal> {
    session.registry.cancel_upload(session.located.place.clone(), id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Takes in a body that may say which part of the upload it is. If its length is another one, it is
/// refused: before anything is written, or at its end if it did not say how long it would be.
async fn receive_piece(
    session: &Session,
    id: &str,
    parts: &Parts,
    body: Body,
) -> Result<u64, Refusal> {
    let Some(range) = claimed(parts)? else { return receive(session, id, None, body).await };
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok());
    if let Some(length) = length.and_then(|length| length.parse().ok()) {
        require_length(&range, length)?;
    }
    let size = receive(session, id, Some(range.start), body).await?;
    require_length(&range, size.saturating_sub(range.start))?;
    Ok(size)
}

fn require_length(range: &Range<u64>, bytes: u64) -> Result<(), Refusal> {
    let claimed = range.end - range.start;
    if bytes == claimed {
        return Ok(());
    }
    let why = format!("the body has {bytes} bytes, and according to Content-Range {claimed}");
    Err(Refusal::new(StatusCode::BAD_REQUEST, "SIZE_INVALID", why))
}

/// Returns which bytes of the upload a request claims to bring. Some clients bring none, as `0--1`.
fn claimed(parts: &Parts) -> Result<Option<Range<u64>>, Refusal> {
    let Some(range) = parts.headers.get(header::CONTENT_RANGE) else { return Ok(None) };
    let text = range.to_str().unwrap_or_default().trim_start_matches("bytes ");
    let text = text.split_once('/').map_or(text, |(text, _)| text);
    let range = text.split_once('-').and_then(|(first, last)| {
        let start: u64 = first.trim().parse().ok()?;
        let last: i64 = last.trim().parse().ok()?;
        let end = u64::try_from(last.checked_add(1)?).ok()?;
        (start <= end).then_some(start..end)
    });
    range.map(Some).ok_or_else(|| RegistryFault::Cut.into())
}

/// Streams a body to disk. This may take long, but the caller must not pause for too long, and it
/// stops when the caller loses the right.
async fn receive(
    session: &Session,
    id: &str,
    from: Option<u64>,
    body: Body,
) -> Result<u64, Refusal> {
    let caller = &session.caller;
    let workspace = &session.context.member.workspace;
    let _open = caller.app.streams.take(workspace, caller.identity.holder())?;
    session.long.announce();
    let (send, pieces) = mpsc::channel(PIECES);
    let place = session.located.place.clone();
    let written = session.registry.append(place, id.to_owned(), from, pieces);
    let outlived = caller.app.auth.outlived(&session.ticket);
    let (denied, written) = tokio::join!(forward(session, body, send, outlived), written);
    match denied {
        Some(denied) => Err(denied.into()),
        None => Ok(written?),
    }
}

/// Returns why the caller lost the right, if that ended it.
async fn forward(
    session: &Session,
    mut body: Body,
    send: mpsc::Sender<io::Result<Bytes>>,
    outlived: impl Future<Output = Denied>,
) -> Option<Denied> {
    let stall = session.registry.limits().stall;
    let mut outlived = pin!(outlived);
    let mut denied = None;
    loop {
        let frame = tokio::select! {
            biased;
            why = &mut outlived => {
                denied = Some(why);
                Some(Err(io::ErrorKind::PermissionDenied.into()))
            }
            frame = tokio::time::timeout(stall, body.frame()) => match frame {
                Err(_) => Some(Err(io::ErrorKind::TimedOut.into())),
                Ok(None) => None,
                Ok(Some(Err(error))) => Some(Err(io::Error::other(error))),
                Ok(Some(Ok(frame))) => Some(Ok(frame)),
            },
            () = send.closed() => None,
        };
        let piece = match frame {
            None => return denied,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Ok(bytes),
                // Trailers have no meaning here.
                Err(_) => continue,
            },
            Some(Err(error)) => Err(error),
        };
        let ends = piece.is_err();
        if send.send(piece).await.is_err() || ends {
            return denied;
        }
    }
}

fn accepted(session: &Session, id: &str, size: u64) -> Response {
    let mut response = empty(StatusCode::ACCEPTED);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, session.address(&format!("blobs/uploads/{id}")));
    headers.insert(header::RANGE, range(size));
    headers.insert(UPLOAD, header_of(id));
    response
}

fn created(session: &Session, digest: &str) -> Response {
    let mut response = empty(StatusCode::CREATED);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, session.address(&format!("blobs/{digest}")));
    headers.insert(DIGEST, header_of(digest));
    response
}
