//! Reads objects.

use super::answers::{empty, quoted, set};
use super::call::{Call, blocking};
use crate::body::{self, Body};
use crate::conditions::{Conditions, Verdict};
use crate::error::Error;
use crate::folder::Object;
use crate::headers::{override_by, restore, text};
use crate::key::Key;
use crate::range::{self, Span};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use types::Timestamp;

/// What is left to do after conditions and ranges were checked.
enum Wanted {
    /// Send an answer without content.
    Answer(Response<Body>),
    Content(Response<Body>, Span),
}

pub(super) async fn head(call: Call, key: Key) -> Result<Response<Body>, Error> {
    blocking(move || {
        let object = call.folder.find(&key)?.ok_or_else(Error::no_key)?;
        Ok(match describe(&call, &object)? {
            Wanted::Answer(response) => response,
            Wanted::Content(mut response, span) => {
                set(&mut response, "content-length", &span.length.to_string());
                response
            }
        })
    })
    .await
}

pub(super) async fn get(call: Call, key: Key) -> Result<Response<Body>, Error> {
    blocking(move || {
        let object = call.folder.find(&key)?.ok_or_else(Error::no_key)?;
        let (mut response, span) = match describe(&call, &object)? {
            Wanted::Answer(response) => return Ok(response),
            Wanted::Content(response, span) => (response, span),
        };
        set(&mut response, "content-length", &span.length.to_string());
        if span.length == 0 {
            return Ok(response);
        }
        let file = object.open()?;
        let end = span.start + span.length;
        let first = body::read(&file, span.start, end)?;
        let at = span.start + first.len() as u64;
        *response.body_mut() =
            if at == end { body::of(first) } else { body::of_file(first, file, at, end) };
        Ok(response)
    })
    .await
}

fn describe(call: &Call, object: &Object) -> Result<Wanted, Error> {
    let (etag, modified_at) = (object.etag(), object.facts.modified_at());
    let headers = &call.parts.headers;
    let mut response = match Conditions::read(headers).for_reading(&etag, modified_at) {
        Verdict::Failed => return Err(Error::condition()),
        Verdict::NotModified => empty(StatusCode::NOT_MODIFIED),
        Verdict::Go => empty(StatusCode::OK),
    };
    set(&mut response, "etag", &quoted(&etag));
    set(&mut response, "last-modified", &modified_at.http_date());
    if response.status() == StatusCode::NOT_MODIFIED {
        return Ok(Wanted::Answer(response));
    }
    set(&mut response, "accept-ranges", "bytes");
    restore(&object.sheet.headers, response.headers_mut());
    override_by(&call.query.0, response.headers_mut())?;
    let size = object.size();
    let Some(span) = wanted_range(call, &etag, modified_at, size)? else {
        checksum(call, object, &mut response);
        return Ok(Wanted::Content(response, Span { start: 0, length: size }));
    };
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let last = span.start + span.length - 1;
    set(&mut response, "content-range", &format!("bytes {}-{last}/{size}", span.start));
    Ok(Wanted::Content(response, span))
}

fn wanted_range(
    call: &Call,
    etag: &str,
    modified_at: types::Timestamp,
    size: u64,
) -> Result<Option<Span>, Error> {
    let Some(range) = text(&call.parts, "range") else { return Ok(None) };
    // A part of something else than the client already has is no use to it.
    if let Some(same) = text(&call.parts, "if-range") {
        let is_same = same.trim_matches('"') == etag
            || Timestamp::from_http_date(same)
                .is_some_and(|at| at.seconds() == modified_at.seconds());
        if !is_same {
            return Ok(None);
        }
    }
    range::read(range, size)
}

/// Adds the checksum of the whole object, for clients that ask.
fn checksum(call: &Call, object: &Object, response: &mut Response<Body>) {
    let asked = text(&call.parts, "x-amz-checksum-mode");
    if !asked.is_some_and(|mode| mode.eq_ignore_ascii_case("ENABLED")) {
        return;
    }
    let Some((name, value)) = object.sheet.checksum(&object.facts) else { return };
    let name = HeaderName::from_bytes(name.as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
        response.headers_mut().insert(name, value);
        set(response, "x-amz-checksum-type", "FULL_OBJECT");
    }
}
