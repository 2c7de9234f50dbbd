//! Safe repetition: which requests count as the same one.

use crate::app::App;
use crate::http::call::{Call, Who};
use crate::http::error::Error;
use crate::http::headers::IDEMPOTENCY_KEY;
use crate::http::malformed::Malformed;
use crate::http::reply::Reply;
use auth::{Grant, Identity, ScopeSet};
use bytes::Bytes;
use control::idempotency::{self, JsonAnswer, RequestKey, ShownAnswer};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use sha2::{Digest, Sha256};
use store::Tx;
use types::ids::WorkspaceId;

const KEY_MAX: usize = 255;
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Reads the idempotency key of a request, if it has one.
///
/// A key is the caller's own: the same key of another caller, or of a token with other scopes, is
/// another key. An answer may hold a secret, and is given again before the operation checks
/// anything, so only those may have it who had it the first time.
pub(crate) fn key(
    app: &App,
    parts: &Parts,
    body: &Bytes,
    who: &impl Who,
) -> Result<Option<RequestKey>, Error> {
    let Some(key) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > KEY_MAX || !key.as_bytes().iter().all(u8::is_ascii_graphic) {
        return Err(Malformed::IdempotencyKey { max: KEY_MAX }.into());
    }
    let digest = digest([parts.method.as_str().as_bytes(), parts.uri.to_string().as_bytes(), body]);
    Ok(Some(RequestKey {
        realm: WorkspaceId::known(who.realm()),
        key: format!("{}/{key}", owner(who.identity())),
        digest,
        room: app.answer_room.clone(),
    }))
}

/// Identifies those who have each other's keys: the credentials of one subject with equal scopes.
/// An API key has all scopes. It is a digest because the names of many scopes are long.
fn owner(who: Option<&Identity>) -> String {
    let Some(who) = who else { return "anyone".to_owned() };
    let scopes = match who.grant {
        Grant::Key => ScopeSet::everything(),
        Grant::Token(scopes) => scopes,
    };
    digest([who.subject.as_str().as_bytes(), scopes.to_string().as_bytes()])
}

fn digest<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    types::hex::encode(&digest.finalize())
}

impl<W: Who, Q, B> Call<W, Q, B> {
    /// Runs `act` in one transaction, and only once for each idempotency key.
    pub(crate) async fn once<T, E>(
        &self,
        act: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<Reply<T>, Error>
    where
        T: Serialize + 'static,
        E: From<control::Error> + From<store::Error> + Into<Error> + Send + 'static,
    {
        let answer = idempotency::once(&self.app.store, self.key.clone(), act).await;
        answer.map(Reply::from).map_err(Into::into)
    }
}

impl<T> From<JsonAnswer> for Reply<T> {
    fn from(answer: JsonAnswer) -> Self {
        Self::written(answer.body).marked(answer.replayed)
    }
}

impl<T> From<ShownAnswer> for Reply<T> {
    fn from(shown: ShownAnswer) -> Self {
        Self::from(shown.answer).versioned(shown.version)
    }
}

impl<T> Reply<T> {
    /// Marks the answer if it repeats that of an earlier request with the same key.
    pub(crate) fn marked(self, replayed: bool) -> Self {
        if replayed { self.with(REPLAYED, HeaderValue::from_static("true")) } else { self }
    }
}
