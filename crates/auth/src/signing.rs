//! The keys that sign access tokens: created, rotated and retired.

use crate::jwt::{ACCESS_LIFE_S, Key};
use base64::Engine;
use jose::BASE64;
use serde_json::{Value, json};
use std::sync::Arc;
use store::Tx;
use store::identity::signing_keys::{self, SigningKey};
use types::Timestamp;
use types::time::DAY_MS;

/// How long a key signs before the next one takes over.
const SIGNS_FOR_MS: i64 = 90 * DAY_MS;
/// How long a key verifies after that: the lifetime of a token, plus a margin for clocks.
const VERIFIES_FOR_S: i64 = ACCESS_LIFE_S + 3600;

/// The keys in use, newest first. The newest one signs.
pub(crate) struct KeySet(Vec<Arc<Key>>);

impl KeySet {
    pub(crate) fn signer(&self) -> Option<Arc<Key>> {
        self.0.iter().find(|key| key.retires_at.is_none()).cloned()
    }

    pub(crate) fn find(&self, id: &str, now: Timestamp) -> Option<Arc<Key>> {
        let in_use = |key: &&Arc<Key>| key.id == id && key.retires_at.is_none_or(|at| at > now);
        self.0.iter().find(in_use).cloned()
    }

    /// Returns the JSON Web Key Set (RFC 7517).
    pub(crate) fn public(&self) -> Value {
        let keys = self.0.iter().map(|key| key.pair.jwk(&key.id));
        json!({"keys": keys.collect::<Vec<_>>()})
    }
}

pub(crate) fn load(tx: &mut Tx<'_>) -> Result<KeySet, store::Error> {
    let keys =
        signing_keys::list(tx)?.into_iter().map(|SigningKey { id, seed, retires_at, .. }| {
            let key = Key::new(&id, &seed, retires_at);
            key.map(Arc::new)
                .ok_or_else(|| store::Error::Seal(format!("the signing key `{id}` is not a key")))
        });
    Ok(KeySet(keys.collect::<Result<_, _>>()?))
}

/// Makes a new key if there is none or the present one has signed long enough.
pub(crate) fn ensure(tx: &mut Tx<'_>) -> Result<KeySet, store::Error> {
    // Another server may be about to make one.
    signing_keys::hold(tx)?;
    let now = tx.world().now();
    let keys = signing_keys::list(tx)?;
    let fresh =
        |key: &SigningKey| key.retires_at.is_none() && now.since(key.created_at) < SIGNS_FOR_MS;
    if keys.iter().any(fresh) { load(tx) } else { rotate(tx) }
}

/// Makes a new key sign. Tokens signed by earlier keys stay valid until they expire.
pub(crate) fn rotate(tx: &mut Tx<'_>) -> Result<KeySet, store::Error> {
    let world = tx.world().clone();
    let now = world.now();
    let seed = BASE64.encode(world.random_bytes::<32>());
    let key = SigningKey { id: world.random_text(12), seed, created_at: now, retires_at: None };
    signing_keys::rotate(tx, &key, now.plus_s(VERIFIES_FOR_S))?;
    load(tx)
}
