//! Writes objects.

use super::answers::{empty, quoted, set};
use super::call::{Call, blocking};
use crate::body::Body;
use crate::checksum::Checksum;
use crate::conditions::Conditions;
use crate::error::{Code, Error};
use crate::folder::{Folder, Object, Sheet};
use crate::headers::to_keep;
use crate::key::Key;
use crate::payload::{Payload, bad_md5};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use md5::{Digest, Md5};
use std::fs::File;
use std::io::Write;
use types::hex;

/// How many bytes are collected before they are written.
const GATHERED: usize = 1 << 20;

/// A body that was received into a draft.
pub(super) struct Received {
    pub(super) draft: File,
    pub(super) md5: [u8; 16],
    /// Field and value of the checksum that came with it.
    pub(super) checksum: Option<(String, String)>,
}

struct Writing {
    draft: File,
    md5: Md5,
}

impl Writing {
    fn write(folder: &Folder, at: Option<Self>, pieces: &[Bytes]) -> Result<Self, Error> {
        let mut writing = match at {
            Some(writing) => writing,
            None => Self { draft: folder.draft()?, md5: Md5::new() },
        };
        for piece in pieces {
            writing.md5.update(piece);
            writing.draft.write_all(piece)?;
        }
        Ok(writing)
    }
}

/// Collects some of a body. Also returns whether that was the rest.
async fn gather(payload: &mut Payload) -> Result<(Vec<Bytes>, bool), Error> {
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    while bytes < GATHERED {
        match payload.next().await? {
            Some(piece) => {
                bytes += piece.len();
                pieces.push(piece);
            }
            None => return Ok((pieces, true)),
        }
    }
    Ok((pieces, false))
}

/// Receives a body, checks it against what was announced, and passes it to `then`, which may block.
pub(super) async fn receive<T: Send + 'static>(
    call: &Call,
    mut payload: Payload,
    bytes_max: u64,
    then: impl FnOnce(Received) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    if payload.needed_length()? > bytes_max {
        return Err(Error::new(Code::EntityTooLarge, "The body is too large."));
    }
    let mut writing = None;
    loop {
        let (pieces, ended) = gather(&mut payload).await?;
        let here = call.folder.clone();
        if !ended {
            let written = blocking(move || Writing::write(&here, writing, &pieces)).await?;
            writing = Some(written);
            continue;
        }
        let checksum = payload.checksum()?;
        let checksum = checksum.map(Checksum::into_field);
        let announced = payload.md5;
        call.require_bucket().await?;
        return blocking(move || {
            let Writing { draft, md5 } = Writing::write(&here, writing, &pieces)?;
            let md5: [u8; 16] = md5.finalize().into();
            if announced.is_some_and(|announced| announced != md5) {
                return Err(bad_md5());
            }
            then(Received { draft, md5, checksum })
        })
        .await;
    }
}

pub(super) async fn put(call: Call, key: Key, payload: Payload) -> Result<Response<Body>, Error> {
    let headers = &call.parts.headers;
    let sheet = Sheet::new(to_keep(headers, call.settings.metadata_bytes_max)?);
    let conditions = Conditions::read(headers);
    if key.is_folder() {
        return put_folder(call, key, sheet, conditions, payload).await;
    }
    let folder = call.folder.clone();
    let bytes_max = call.settings.put_bytes_max;
    let (etag, checksum) = receive(&call, payload, bytes_max, move |received| {
        let etag = hex::encode(&received.md5);
        let mut sheet = sheet.with_checksum(received.checksum.clone());
        folder.finish(&received.draft, &mut sheet, &etag)?;
        let exclusive = conditions.is_exclusive();
        folder.publish((&received.draft, sheet), &key, exclusive, holding(&conditions))?;
        Ok((etag, received.checksum))
    })
    .await?;
    let mut response = stored(&etag);
    echo(&mut response, checksum);
    Ok(response)
}

/// Returns a check of a write's conditions, for the moment when the write takes effect.
pub(super) fn holding(
    conditions: &Conditions,
) -> impl Fn(Option<&Object>) -> Result<(), Error> + '_ {
    |there| conditions.for_writing(there.map(Object::etag).as_deref())
}

async fn put_folder(
    call: Call,
    key: Key,
    sheet: Sheet,
    conditions: Conditions,
    payload: Payload,
) -> Result<Response<Body>, Error> {
    match payload.collect(1).await {
        Ok(body) if body.is_empty() => {}
        Ok(_) | Err(Error { code: Code::EntityTooLarge, .. }) => {
            let message = "A key that ends in a slash is a folder, which has no content.";
            return Err(Error::argument(message));
        }
        Err(error) => return Err(error),
    }
    blocking(move || call.folder.put_folder(&key, sheet, holding(&conditions))).await?;
    Ok(stored(&hex::encode(&crate::payload::md5_of(b""))))
}

pub(super) fn stored(etag: &str) -> Response<Body> {
    let mut response = empty(StatusCode::OK);
    set(&mut response, "etag", &quoted(etag));
    response
}

/// Adds the checksum that the body was checked against to an answer.
pub(super) fn echo(response: &mut Response<Body>, checksum: Option<(String, String)>) {
    let Some((name, value)) = checksum else { return };
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
        response.headers_mut().insert(name, value);
    }
}
