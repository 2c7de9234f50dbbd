//! Remembers what MCP servers answered to `tools/list`, for callers who ask while the server
//! sleeps.
//!
//! ```text
//! Asked    a request that is nothing but this question, and all that the answer may depend on
//! Listen   copies the answer of a server that is awake, on its way to the caller
//! Lists    the latest answers; the same question gets one while no replica is awake
//! ```
//!
//! A list is kept for its revision and for exactly what was asked: the same caller, the same
//! headers, the same session. So nobody gets what another caller was told, and a new revision
//! answers for itself. In a session the list is forgotten with the next request that is anything
//! else, because a call may change which tools there are, and an answer that is on its way then is
//! not kept. What is kept counts against the
//! workspace; when its share is used up, a workload forgets its own oldest lists.

mod asked;
mod form;
mod lists;
mod message;

pub(crate) use asked::Asked;
pub(crate) use lists::{Lists, Outdated};

use crate::destination::Destination;
use crate::headers;
use crate::hold::Hold;
use crate::problem::Problem;
use crate::settings::Settings;
use crate::traffic::Traffic;
use crate::wire::RequestBody;
use admission::{Permit, Pool};
use bytes::Bytes;
use form::{Form, is_of_type};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, SET_COOKIE};
use http::request::Parts as Head;
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use lists::Kept;
use message::{only_message, result_of};
use std::sync::Arc;
use types::KindName;

/// The path at which MCP servers answer.
const PATH: &str = "/mcp";
/// Room for a copy is taken in steps of this many bytes.
const STEP: usize = 16 << 10;

/// Returns whether a request may be for the list of tools, judging by its head.
fn may_ask(head: &Head, to: &Destination, body_max: u64) -> bool {
    let length = || {
        let length = head.headers.get(CONTENT_LENGTH)?.to_str().ok()?;
        length.parse::<u64>().ok()
    };
    to.workload.kind == KindName::Function
        && head.method == Method::POST
        && to.target.path() == PATH
        && is_of_type(&head.headers, "application/json")
        && !head.headers.contains_key(CONTENT_ENCODING)
        && length().is_some_and(|length| length > 0 && length <= body_max)
}

/// Reads the body of a request that may be for the list of tools. Any other body is left to pass as
/// it comes.
pub(crate) async fn read(
    settings: &Settings,
    (head, to): (&Head, &Destination),
    hold: &mut Hold,
    body: RequestBody,
) -> Result<(RequestBody, Option<Bytes>), Problem> {
    if !may_ask(head, to, settings.tool_list_request_max) {
        return Ok((body, None));
    }
    let kind = to.workload.kind;
    let limits = settings.exchange_limits(&to.workload);
    // Boxed, so that all other requests do not carry its state.
    let read = Box::pin(tokio::time::timeout(limits.idle, body.collect()));
    let read = tokio::select! {
        read = read => read,
        end = hold.end() => return Err(Problem::ended(end, kind, limits.time)),
    };
    let Ok(Ok(whole)) = read else {
        return Err(Problem::BadRequest("the body of the request was cut off"));
    };
    let bytes = whole.to_bytes();
    Ok((RequestBody::Whole(Full::new(bytes.clone())), Some(bytes)))
}

/// Where an answer is kept, and how much of it may be copied.
pub(crate) struct Place {
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) pool: Pool<String>,
    pub(crate) owner: String,
    pub(crate) bytes_max: usize,
}

/// Copies an answer as it passes.
pub(crate) struct Listen {
    place: Place,
    revision: String,
    asked: Asked,
    outdated: Outdated,
    form: Form,
    names_session: bool,
    copy: Vec<u8>,
    room: Vec<Permit<String>>,
}

impl Listen {
    /// `None` means the answer must not be given again.
    pub(crate) fn to<B>(
        response: &Response<B>,
        place: Place,
        revision: &str,
        (asked, outdated): (Asked, Outdated),
    ) -> Option<Self> {
        let headers = response.headers();
        let form = Form::of(headers)?;
        let session = headers.get(headers::MCP_SESSION);
        let is_same_session = session.is_none() || session == asked.session_name.as_ref();
        let may_be_kept = headers
            .get_all(CACHE_CONTROL)
            .iter()
            .all(|value| value.to_str().is_ok_and(|value| !value.contains("no-store")));
        let plain = response.status() == StatusCode::OK
            && !headers.contains_key(CONTENT_ENCODING)
            && !headers.contains_key(SET_COOKIE);
        (plain && is_same_session && may_be_kept).then(|| Self {
            place,
            revision: revision.to_owned(),
            form,
            names_session: session.is_some(),
            asked,
            outdated,
            copy: Vec::new(),
            room: Vec::new(),
        })
    }

    /// Copies a piece. Returns `false` if there is no room for the rest, so that the copy is of no
    /// use.
    pub(crate) fn copy(&mut self, piece: &Bytes) -> bool {
        let length = self.copy.len() + piece.len();
        let Place { traffic, pool, owner, bytes_max } = &self.place;
        if length > *bytes_max {
            return false;
        }
        let missing = length.saturating_sub(self.room.len() * STEP).div_ceil(STEP);
        for _ in 0..missing {
            match traffic.tool_lists.room(pool, owner, STEP) {
                Some(permit) => self.room.push(permit),
                None => return false,
            }
        }
        self.copy.extend_from_slice(piece);
        true
    }

    /// Keeps the answer, now that it is whole.
    pub(crate) fn finish(self) {
        let Self { place, revision, asked, outdated, form, names_session, copy, room } = self;
        let result = match form {
            Form::Json => result_of(&copy, &asked.id),
            Form::Events => {
                only_message(&copy).and_then(|text| result_of(text.as_bytes(), &asked.id))
            }
        };
        drop((copy, room));
        let Some(result) = result else { return };
        let lists = &place.traffic.tool_lists;
        let Some(permit) = lists.room(&place.pool, &place.owner, result.len()) else { return };
        let key = asked.key(&revision);
        let digest = asked.digest;
        let kept = Kept { revision, digest, form, result, names_session, used: 0, _permit: permit };
        lists.put(key, kept, &outdated);
    }
}

#[cfg(test)]
#[path = "tool_lists_tests.rs"]
mod tests;
