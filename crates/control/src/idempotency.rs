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
    let Some(RequestKey { realm, key, digest }) = key else {
        return store.write(move |tx| act(tx).map(|value| JsonAnswer::of(&value))).await;
    };
    let keyring = store.keyring();
    let seal_context = format!("idempotency/{realm}/{key}");
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
