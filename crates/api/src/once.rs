//! Repeating a request safely: the same idempotency key and body give the first answer again.

use crate::Error;
use crate::call::{Call, Who};
use crate::headers::IDEMPOTENCY_KEY;
use crate::reply::Reply;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use sha2::{Digest, Sha256};
use store::Tx;
use store::idempotency::{self, Claim};
use types::ids::WorkspaceId;

const KEY_MAX: usize = 255;

/// What a caller calls one attempt, and a digest of what it sent.
#[derive(Debug, Clone)]
pub(crate) struct OnceKey {
    key: String,
    digest: String,
}

impl OnceKey {
    pub(crate) fn read(parts: &Parts, body: &Bytes) -> Result<Option<Self>, Error> {
        let Some(key) = parts.headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
        let key = key.to_str().unwrap_or_default();
        if key.is_empty() || key.len() > KEY_MAX || !key.as_bytes().iter().all(u8::is_ascii_graphic)
        {
            return Err(Error::Malformed(format!(
                "`Idempotency-Key` must be 1 to {KEY_MAX} visible ASCII characters"
            )));
        }
        let mut digest = Sha256::new();
        for part in [parts.method.as_str().as_bytes(), parts.uri.to_string().as_bytes(), body] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Self { key: key.to_owned(), digest }))
    }
}

impl<W: Who, Q, B> Call<W, Q, B> {
    /// Runs `act` in one transaction. With an idempotency key, it runs once: the answer is kept in
    /// the same transaction, sealed because it may show a secret that is shown only once, and given
    /// again.
    pub(crate) async fn once<T>(
        &self,
        mut act: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<Reply<T>, Error>
    where
        T: Serialize + 'static,
    {
        let Some(once) = self.once.clone() else {
            return self.app.store.write(move |tx| act(tx).map(|value| Reply::of(&value))).await;
        };
        let (realm, keyring) = (WorkspaceId::known(self.who.realm()), self.app.store.keyring());
        let context = format!("idempotency/{realm}/{}", once.key);
        let work = move |tx: &mut Tx<'_>| {
            match idempotency::claim(tx, &realm, &once.key, &once.digest)? {
            Claim::New => {
                let reply = Reply::of(&act(tx)?);
                let text = String::from_utf8_lossy(&reply.body).into_owned();
                idempotency::record(tx, &realm, &once.key, 200, &keyring.read().seal(&context, &text)?)?;
                Ok(reply)
            }
            Claim::Done { body, .. } => {
                let replayed = (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));
                Ok(Reply::written(keyring.read().open(&context, &body)?.into()).with(replayed.0, replayed.1))
            }
            Claim::Conflict => Err(Error::Conflict(
                "this `Idempotency-Key` was used for another request; use a new key for a new request".into(),
            )),
        }
        };
        self.app.store.write(work).await
    }
}
