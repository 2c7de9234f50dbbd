//! Safe repetition of requests: the same key and content give the first answer again.

use crate::engine::Shown;
use crate::error::{Conflict, Error};
use crate::json;
use bytes::Bytes;
use jobs::Daily;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use store::idempotency::{self, Claim};
use store::{KeyFile, Store, Tx};
use types::ids::WorkspaceId;

/// The status that the store notes of a kept answer. Only answers of success are kept.
const SUCCESS: u16 = 200;

/// The caller's name for a request, which is the same when it is repeated, and a digest of its
/// content.
#[derive(Debug, Clone)]
pub struct RequestKey {
    /// The workspace within which the key is unique.
    pub realm: WorkspaceId,
    /// Names the caller as well: an answer is given again before `act` can check any right.
    pub key: String,
    pub digest: String,
    pub room: AnswerRoom,
}

/// What one row takes in the database besides its key and its answer, roughly.
const ROW_BYTES: usize = 256;

/// Room in the database for answers that are kept, which each workspace has for every day. Cheap to
/// clone.
#[derive(Debug, Clone)]
pub struct AnswerRoom {
    kept: Arc<Daily>,
    day_bytes_max: u64,
}

impl AnswerRoom {
    pub fn new(day_bytes_max: u64) -> Self {
        Self { kept: Arc::default(), day_bytes_max }
    }

    /// Counts an answer, unless the transaction is undone. Refuses it if it is too much, and with it
    /// the request: a request that was done but whose answer was not kept would be done again when
    /// it is repeated.
    fn take(&self, tx: &mut Tx<'_>, realm: &WorkspaceId, bytes: usize) -> Result<(), Error> {
        let (now, bytes) = (tx.world().now(), bytes as u64);
        if !self.kept.take(realm, bytes, self.day_bytes_max, now) {
            return Err(Error::AnswersFull { limit: self.day_bytes_max });
        }
        let (kept, realm) = (Arc::clone(&self.kept), realm.clone());
        tx.if_undone(move || kept.give_back(&realm, bytes, now));
        Ok(())
    }
}

impl RequestKey {
    fn seal_context(&self) -> String {
        format!("idempotency/{}/{}", self.realm, self.key)
    }
}

/// A request's answer, already written as JSON so that it can be kept and given again.
#[derive(Debug, Clone)]
pub struct JsonAnswer {
    pub body: Bytes,
    /// Whether this is the answer of an earlier request.
    pub replayed: bool,
}

/// The answer to a request for an object, and the version of the object.
#[derive(Debug, Clone)]
pub struct ShownAnswer {
    pub answer: JsonAnswer,
    pub version: i64,
}

impl JsonAnswer {
    pub fn of(value: &impl Serialize) -> Self {
        Self { body: json::bytes(value).into(), replayed: false }
    }
}

/// Runs `act` in one transaction. With a key it runs only once: the answer is kept in the same
/// transaction, sealed because it may have a secret that is shown only once, and repetitions get it
/// again.
pub fn once<T, E>(
    store: &Store,
    key: Option<RequestKey>,
    mut act: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
) -> impl Future<Output = Result<JsonAnswer, E>> + Send
where
    T: Serialize + 'static,
    E: From<Error> + From<store::Error> + Send + 'static,
{
    let act = move |tx: &mut Tx<'_>| act(tx).map(|value| JsonAnswer::of(&value));
    once_answered(store, key, Box::new(act))
}

type Act<E> = Box<dyn FnMut(&mut Tx<'_>) -> Result<JsonAnswer, E> + Send>;

/// Does what [`once`] does, for all types of answers alike.
async fn once_answered<E>(
    store: &Store,
    key: Option<RequestKey>,
    mut act: Act<E>,
) -> Result<JsonAnswer, E>
where
    E: From<Error> + From<store::Error> + Send + 'static,
{
    let Some(request) = key else { return store.write(act).await };
    let (keyring, seal_context) = (store.keyring(), request.seal_context());
    let RequestKey { realm, key, digest, room } = request;
    let work = move |tx: &mut Tx<'_>| match idempotency::claim(tx, &realm, &key, &digest)? {
        Claim::New => {
            let answer = act(tx)?;
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            let sealed = keyring.read().seal(&seal_context, &text)?;
            room.take(tx, &realm, sealed.len() + key.len() + ROW_BYTES)?;
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

/// An object and its version, as they are kept under a key.
#[derive(Serialize, Deserialize)]
struct KeptObject {
    object: String,
    version: i64,
}

/// Like [`once`], for an answer that also tells the version of its object.
pub async fn once_shown<K: Serialize>(
    store: &Store,
    key: Option<RequestKey>,
    mut act: impl FnMut(&mut Tx<'_>) -> Result<Shown<K>, Error> + Send + 'static,
) -> Result<ShownAnswer, Error> {
    let kept = once(store, key, move |tx| {
        let Shown { object, version } = act(tx)?;
        Ok::<_, Error>(KeptObject { object: json::text(&object), version })
    });
    let JsonAnswer { body, replayed } = kept.await?;
    let KeptObject { object, version } = kept_answer(&body)?;
    Ok(ShownAnswer { answer: JsonAnswer { body: object.into(), replayed }, version })
}

/// Reads what an act returned, which was kept for requests with the same key.
pub fn kept_answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, store::Error> {
    let read = serde_json::from_slice(body);
    read.map_err(|error| store::Error::corrupt("idempotency", "a kept answer", error))
}

/// Returns the answer of an earlier request with this key. It is for requests that do more than one
/// transaction, whose other work must not be repeated.
pub(crate) async fn earlier(
    store: &Store,
    key: Option<&RequestKey>,
) -> Result<Option<JsonAnswer>, Error> {
    let Some(request) = key.cloned() else { return Ok(None) };
    let keyring = store.keyring();
    store.read(move |tx| kept(tx, &keyring, &request)).await
}

fn kept(
    tx: &mut Tx<'_>,
    keyring: &KeyFile,
    request: &RequestKey,
) -> Result<Option<JsonAnswer>, Error> {
    match idempotency::find(tx, &request.realm, &request.key, &request.digest)? {
        Some(Claim::Done { body, .. }) => {
            let body = keyring.read().open(&request.seal_context(), &body)?.into();
            Ok(Some(JsonAnswer { body, replayed: true }))
        }
        Some(Claim::Conflict) => Err(Error::from(Conflict::KeyReused)),
        Some(Claim::New) | None => Ok(None),
    }
}

/// Forgets a key, unless it has another answer by now. Returns whether it had this one.
pub(crate) fn forget_answer(
    tx: &mut Tx<'_>,
    keyring: &KeyFile,
    request: &RequestKey,
    answer: &JsonAnswer,
) -> Result<bool, Error> {
    let has_it = kept(tx, keyring, request)?.is_some_and(|kept| kept.body == answer.body);
    if has_it {
        forget(tx, Some(request))?;
    }
    Ok(has_it)
}

/// Forgets a key whose work was taken back: a repetition must not be answered as if the object were
/// there.
pub(crate) fn forget(tx: &mut Tx<'_>, key: Option<&RequestKey>) -> Result<(), Error> {
    match key {
        Some(request) => Ok(idempotency::forget(tx, &request.realm, &request.key)?),
        None => Ok(()),
    }
}
