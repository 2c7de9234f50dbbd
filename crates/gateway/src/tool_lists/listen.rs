//! Copies the answer of a server that is awake, on its way to the caller who asked.

use super::form::Form;
use super::lists::{CachedList, Outdated};
use super::message::{only_message, result_of};
use super::request::ListRequest;
use crate::headers;
use crate::traffic::Traffic;
use admission::{Permit, Pool};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, SET_COOKIE};
use http::{Response, StatusCode};
use std::sync::Arc;

/// Room for a copy is taken in steps of this many bytes.
const STEP: usize = 16 << 10;

/// Where an answer is kept, and how much of it may be copied.
pub(crate) struct ListStore {
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) pool: Pool<String>,
    pub(crate) owner: String,
    pub(crate) bytes_max: usize,
}

/// Copies an answer as it passes.
pub(crate) struct Listen {
    store: ListStore,
    revision: String,
    asked: ListRequest,
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
        store: ListStore,
        revision: &str,
        (asked, outdated): (ListRequest, Outdated),
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
            store,
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
        let ListStore { traffic, pool, owner, bytes_max } = &self.store;
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
        let Self { store, revision, asked, outdated, form, names_session, copy, room } = self;
        let result = match form {
            Form::Json => result_of(&copy, &asked.id),
            Form::Events => {
                only_message(&copy).and_then(|text| result_of(text.as_bytes(), &asked.id))
            }
        };
        drop((copy, room));
        let Some(result) = result else { return };
        let lists = &store.traffic.tool_lists;
        let Some(permit) = lists.room(&store.pool, &store.owner, result.len()) else { return };
        let key = asked.key(&revision);
        let digest = asked.digest;
        let kept =
            CachedList { revision, digest, form, result, names_session, used: 0, _permit: permit };
        lists.put(key, kept, &outdated);
    }
}
