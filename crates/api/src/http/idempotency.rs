//! Safe repetition: which requests count as the same one.

use crate::http::call::{Call, Who};
use crate::http::error::Error;
use crate::http::headers::IDEMPOTENCY_KEY;
use crate::http::malformed::Malformed;
use crate::http::reply::Reply;
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

/// Reads the idempotency key of a request, if it has one. `realm` identifies the callers who share
/// keys.
pub(crate) fn key(parts: &Parts, body: &Bytes, realm: String) -> Result<Option<RequestKey>, Error> {
    let Some(key) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > KEY_MAX || !key.as_bytes().iter().all(u8::is_ascii_graphic) {
        return Err(Malformed::IdempotencyKey { max: KEY_MAX }.into());
    }
    let mut digest = Sha256::new();
    for part in [parts.method.as_str().as_bytes(), parts.uri.to_string().as_bytes(), body] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(RequestKey { realm: WorkspaceId::known(realm), key: key.to_owned(), digest }))
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
