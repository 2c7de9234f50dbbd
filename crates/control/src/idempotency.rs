//! Repeating a request safely: the same key and content give the first answer again.

use crate::error::{Conflict, Error};
use crate::json;
use bytes::Bytes;
use serde::Serialize;
use store::idempotency::{self, Claim};
use store::{Store, Tx};
use types::ids::WorkspaceId;

/// What the store notes of an answer that is kept: it is one that succeeded.
const SUCCESS: u16 = 200;

/// What a caller calls one attempt, and a digest of what it sent.
#[derive(Debug, Clone)]
pub struct RequestKey {
    /// Whose repetitions of one key belong together.
    pub realm: WorkspaceId,
    pub key: String,
    pub digest: String,
}

impl RequestKey {
    fn seal_context(&self) -> String {
        format!("idempotency/{}/{}", self.realm, self.key)
    }
}

/// What a request is answered, as JSON. Written at once, so that it can be kept and given again.
#[derive(Debug, Clone)]
pub struct JsonAnswer {
    pub body: Bytes,
    /// Whether it is the one of an earlier request.
    pub replayed: bool,
}

impl JsonAnswer {
    pub fn of(value: &impl Serialize) -> Self {
        Self { body: json::bytes(value).into(), replayed: false }
    }
}

/// Runs `act` in one transaction. With a key, it runs once: the answer is kept in the same
/// transaction, sealed because it may show a secret that is shown only once, and given again.
pub async fn once<T, E>(
    store: &Store,
    key: Option<RequestKey>,
    mut act: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
) -> Result<JsonAnswer, E>
where
    T: Serialize + 'static,
    E: From<Error> + From<store::Error> + Send + 'static,
{
    let Some(request) = key else {
        return store.write(move |tx| act(tx).map(|value| JsonAnswer::of(&value))).await;
    };
    let (keyring, seal_context) = (store.keyring(), request.seal_context());
    let RequestKey { realm, key, digest } = request;
    let work = move |tx: &mut Tx<'_>| match idempotency::claim(tx, &realm, &key, &digest)? {
        Claim::New => {
            let answer = JsonAnswer::of(&act(tx)?);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let sealed = keyring.read().seal(&seal_context, &text)?;
            idempotency::record(tx, &realm, &key, SUCCESS.into(), &sealed)?;
            Ok(answer)
        }
        Claim::Done { body, .. } => {
            let body = keyring.read().open(&seal_context, &body)?.into();
            Ok(JsonAnswer { body, replayed: true })
        }
        Claim::Conflict => Err(Error::from(Conflict::KeyReused).into()),
    };
    store.write(work).await
}

/// The answer of an earlier request with this key, for what does more than one transaction: the rest
/// must not be done again.
pub(crate) async fn earlier(
    store: &Store,
    key: Option<&RequestKey>,
) -> Result<Option<JsonAnswer>, Error> {
    let Some(request) = key.cloned() else { return Ok(None) };
    let keyring = store.keyring();
    let work = move |tx: &mut Tx<'_>| match idempotency::find(
        tx,
        &request.realm,
        &request.key,
        &request.digest,
    )? {
        Some(Claim::Done { body, .. }) => {
            let body = keyring.read().open(&request.seal_context(), &body)?.into();
            Ok(Some(JsonAnswer { body, replayed: true }))
        }
        Some(Claim::Conflict) => Err(Error::from(Conflict::KeyReused)),
        Some(Claim::New) | None => Ok(None),
    };
    store.read(work).await
}

/// Lets a key be used again: what was done under it was taken back, so it must not be answered as if
/// it were there.
pub(crate) fn forget(tx: &mut Tx<'_>, key: Option<&RequestKey>) -> Result<(), Error> {
    match key {
        Some(request) => Ok(idempotency::forget(tx, &request.realm, &request.key)?),
        None => Ok(()),
    }
}
