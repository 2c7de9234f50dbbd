//! The state with which servers tell who is calling.

use crate::cache::{Cache, Entry};
use crate::identity::{self, Grant, Identity, Member};
use crate::jwt::{self, Key};
use crate::outside::{Discoveries, OutsideError, Provider};
use crate::passwords::Passwords;
use crate::signing::{self, KeySet};
use crate::throttle::Throttle;
use crate::{Denied, secrets};
use admission::Recheck;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use store::identity::{Digest, KINDS, api_keys, grants};
use store::{Store, Tx, feed};
use tokio::sync::watch;
use types::{Timestamp, World};

/// Longest credential in bytes; longer texts are none of ours.
pub(crate) const CREDENTIAL_BYTES_MAX: usize = 8192;
/// Most wrong passwords for one address, and most wrong user codes by one person, within
/// [`GUESSING_WINDOW_S`].
const GUESSES_MAX: u32 = 10;
const GUESSING_WINDOW_S: i64 = 15 * 60;
/// Lifetime of a device code, and the period in which a client's requests for codes are counted.
pub(crate) const DEVICE_LIFE_S: i64 = 600;

/// Shortest interval between reloads of the signing keys because a token names an unknown key.
const KEYS_READ_EVERY_MS: i64 = 1000;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Address of this server without a trailing slash, used as `iss` and `aud` of tokens.
    pub issuer: String,
    /// How long changes made by other servers may go unnoticed.
    pub feed_poll: Duration,
    /// Provider with which people can sign in, besides using a password here.
    pub outside: Option<Provider>,
    pub limits: Limits,
}

/// Limits on callers who have not been identified yet.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most wrong passwords from one client within a quarter of an hour, for any addresses.
    pub client_guesses_max: u32,
    /// Most device codes for one client within the lifetime of a code.
    pub client_devices_max: u32,
    /// Most device codes that wait for a decision. The oldest is dropped to make room for another.
    pub devices_max: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { client_guesses_max: 100, client_devices_max: 50, devices_max: 10_000 }
    }
}

/// Identifies callers. Cheap to clone.
#[derive(Clone)]
pub struct Auth(Arc<Inner>);

struct Inner {
    store: Store,
    settings: Settings,
    world: World,
    memory: Arc<Memory>,
    passwords: Passwords,
    sign_ins: Throttle,
    user_codes: Throttle,
    client_guesses: Throttle,
    client_devices: Throttle,
    discoveries: Discoveries,
    recheck: Recheck,
    follower: tokio::task::AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

/// What is dropped or reloaded when the feed reports a change.
struct Memory {
    cache: Cache,
    keys: RwLock<Arc<KeySet>>,
    /// When the keys were last reloaded because of an unknown key.
    keys_read_at: Mutex<Timestamp>,
}

impl Auth {
    /// Loads the keys that sign tokens, creates them at the first start, and starts to follow
    /// changes.
    pub async fn new(store: Store, settings: Settings, world: World) -> Result<Self, store::Error> {
        let (keys, position) = store
            .write(|tx| Ok::<_, store::Error>((signing::ensure(tx)?, feed::latest(tx)?)))
            .await?;
        let memory = Arc::new(Memory {
            cache: Cache::default(),
            keys: RwLock::new(Arc::new(keys)),
            keys_read_at: Mutex::default(),
        });
        let follow = follow(store.clone(), memory.clone(), position, settings.feed_poll);
        let follower = tokio::spawn(follow).abort_handle();
        let guesses = |what, failures_max| {
            Throttle::new(what, world.clone(), failures_max, GUESSING_WINDOW_S)
        };
        let devices = Throttle::new(
            "device codes",
            world.clone(),
            settings.limits.client_devices_max,
            DEVICE_LIFE_S,
        );
        Ok(Self(Arc::new(Inner {
            store,
            memory,
            passwords: Passwords::new(),
            sign_ins: guesses("passwords of an account", GUESSES_MAX),
            user_codes: guesses("user codes", GUESSES_MAX),
            client_guesses: guesses("passwords from a client", settings.limits.client_guesses_max),
            client_devices: devices,
            discoveries: Discoveries::default(),
            recheck: Recheck::default(),
            follower,
            settings,
            world,
        })))
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn world(&self) -> &World {
        &self.0.world
    }

    pub fn issuer(&self) -> &str {
        &self.0.settings.issuer
    }

    pub(crate) fn provider(&self) -> Result<&Provider, OutsideError> {
        self.0.settings.outside.as_ref().ok_or(OutsideError::Off)
    }

    pub(crate) fn discoveries(&self) -> &Discoveries {
        &self.0.discoveries
    }

    pub(crate) fn passwords(&self) -> &Passwords {
        &self.0.passwords
    }

    pub(crate) fn sign_ins(&self) -> &Throttle {
        &self.0.sign_ins
    }

    pub(crate) fn user_codes(&self) -> &Throttle {
        &self.0.user_codes
    }

    pub(crate) fn client_guesses(&self) -> &Throttle {
        &self.0.client_guesses
    }

    pub(crate) fn client_devices(&self) -> &Throttle {
        &self.0.client_devices
    }

    pub(crate) fn limits(&self) -> Limits {
        self.0.settings.limits
    }

    /// Returns a receiver that is notified after every change that may revoke somebody's access,
    /// including changes made by other servers.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.memory.cache.forgotten()
    }

    pub(crate) fn recheck(&self) -> &Recheck {
        &self.0.recheck
    }

    pub(crate) fn keys(&self) -> Arc<KeySet> {
        self.0.memory.keys.read().clone()
    }

    /// Returns the public halves of the signing keys, for those who verify tokens themselves.
    pub fn jwks(&self) -> Value {
        self.keys().public()
    }

    /// Runs a change of identities or rights. When it returns, this server no longer uses anything
    /// it knew before; other servers learn of it from the feed.
    pub async fn change<T, E>(
        &self,
        work: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<store::Error> + Send + 'static,
    {
        let done = self.0.store.write(work).await;
        self.forget();
        done
    }

    /// Drops all identities from memory. Must be called after a change that was not made through
    /// [`Auth::change`], even a failed one: the commit may have happened although its answer was
    /// lost.
    pub fn forget(&self) {
        self.0.memory.cache.forget();
    }

    /// Returns the identity behind an API key or an access token. Refuses keys that are for models
    /// only.
    pub async fn identify(&self, token: &str) -> Result<Arc<Identity>, Denied> {
        let identity = self.identify_for_models(token).await?;
        if identity.models.is_some() { Err(Denied::ForModels) } else { Ok(identity) }
    }

    /// Does the same, but accepts keys for models. Callers must enforce [`Identity::models`].
    pub async fn identify_for_models(&self, token: &str) -> Result<Arc<Identity>, Denied> {
        let digest = Digest::of(token);
        let known = match self.0.memory.cache.get(&digest) {
            Some(known) => known,
            None => self.look_up(token, digest).await?,
        };
        match known.expires_at {
            Some(at) if at <= self.0.world.now() => Err(Denied::Expired),
            _ => Ok(known.identity),
        }
    }

    /// Selects the workspace: the named one, or the only one.
    pub fn enter(&self, who: &Arc<Identity>, workspace: Option<&str>) -> Result<Member, Denied> {
        who.enter(workspace)
    }

    async fn look_up(&self, token: &str, digest: Digest) -> Result<Entry, Denied> {
        let epoch = self.0.memory.cache.epoch();
        let entry = if token.len() > CREDENTIAL_BYTES_MAX {
            return Err(Denied::Unknown);
        } else if secrets::is_api_key(token) {
            self.0.store.read(move |tx| by_key(tx, &digest)).await?
        } else {
            let claims = self.verify(token).await?;
            self.0.store.read(move |tx| by_claims(tx, &claims)).await?
        };
        self.0.memory.cache.remember(epoch, digest, entry.clone());
        Ok(entry)
    }

    pub(crate) async fn verify(&self, token: &str) -> Result<jwt::Claims, Denied> {
        let id = jwt::key_id(token).ok_or(Denied::Unknown)?;
        let key = self.verifying_key(&id).await?;
        Ok(jwt::verify(token, &key, self.issuer(), self.0.world.now())?)
    }

    /// Returns the signing key with this id. An unknown id makes it reload the keys, because
    /// another server may have created the key just now.
    pub(crate) async fn verifying_key(&self, id: &str) -> Result<Arc<Key>, Denied> {
        let now = self.0.world.now();
        if let Some(key) = self.keys().find(id, now) {
            return Ok(key);
        }
        {
            let mut read_at = self.0.memory.keys_read_at.lock();
            if now.since(*read_at) < KEYS_READ_EVERY_MS {
                return Err(Denied::Unknown);
            }
            *read_at = now;
        }
        reload_keys(&self.0.store, &self.0.memory).await?;
        self.keys().find(id, now).ok_or(Denied::Unknown)
    }

    /// Makes a new key sign tokens; tokens that were signed before stay valid until they expire.
    #[cfg(test)]
    pub(crate) async fn rotate_signing_key(&self) -> Result<(), store::Error> {
        let keys = self.0.store.write(signing::rotate).await?;
        *self.0.memory.keys.write() = Arc::new(keys);
        Ok(())
    }

    /// Deletes what has expired and rotates keys that are due. To be called about once an hour.
    pub async fn maintain(&self) -> Result<(), store::Error> {
        let keys = self
            .0
            .store
            .write(|tx| {
                let gone = store::identity::sweep(tx)?;
                tracing::debug!(gone, "expired grants, codes and sessions were deleted");
                signing::ensure(tx)
            })
            .await?;
        *self.0.memory.keys.write() = Arc::new(keys);
        Ok(())
    }
}

fn by_key(tx: &mut Tx<'_>, digest: &Digest) -> Result<Entry, Denied> {
    let key = api_keys::find_by_digest(tx, digest)?.ok_or(Denied::Unknown)?;
    let right = key.models.map(|models| Arc::new(models.right(key.id.as_str(), &key.name)));
    let mut identity =
        identity::load(tx, &key.subject, Grant::Key, Some(key.id))?.ok_or(Denied::Unknown)?;
    identity.models = right;
    Ok(Entry { identity: Arc::new(identity), expires_at: key.expires_at })
}

fn by_claims(tx: &mut Tx<'_>, claims: &jwt::Claims) -> Result<Entry, Denied> {
    let grant = grants::find(tx, &claims.grant())?.ok_or(Denied::Unknown)?;
    let scopes = claims.scopes().ok_or(Denied::Unknown)?;
    if claims.subject().as_ref() != Some(&grant.subject) || claims.client() != grant.client {
        return Err(Denied::Unknown);
    }
    let identity =
        identity::load(tx, &grant.subject, Grant::Token(scopes), None)?.ok_or(Denied::Unknown)?;
    Ok(Entry { identity: Arc::new(identity), expires_at: Some(claims.expires_at()) })
}

/// Drops from memory what other servers have changed.
async fn follow(store: Store, memory: Arc<Memory>, position: i64, poll: Duration) {
    let mut follower = store.follow(position, poll);
    // Said once, or an outage of the database would fill the log.
    let mut is_failing = false;
    loop {
        match follower.next().await {
            Ok(changes) => {
                if changes.iter().any(alters_known) {
                    memory.cache.forget();
                }
                if changes.iter().any(|change| change.kind == "signing-key")
                    && let Err(error) = reload_keys(&store, &memory).await
                {
                    tracing::error!(%error, "the signing keys could not be read again");
                }
            }
            Err(error) => {
                // Nothing in memory can be trusted while changes of other servers cannot be seen.
                memory.cache.forget();
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "the change feed cannot be followed; it is tried again");
                }
                tokio::time::sleep(poll).await;
                if let Ok(latest) = store.read(feed::latest).await {
                    is_failing = false;
                    memory.cache.forget();
                    follower = store.follow(latest, poll);
                }
            }
        }
    }
}

/// Returns true if a change can make remembered identities wrong. New objects were never
/// remembered, but a new member or account admin may be a person who was.
fn alters_known(change: &feed::Change) -> bool {
    let about_identity = KINDS.contains(&change.kind.as_str());
    about_identity
        && (change.act != feed::Act::Created
            || matches!(change.kind.as_str(), "member" | "account-admin"))
}

async fn reload_keys(store: &Store, memory: &Memory) -> Result<(), store::Error> {
    *memory.keys.write() = Arc::new(store.read(signing::load).await?);
    Ok(())
}

#[cfg(test)]
impl Auth {
    /// Makes an `Auth` for tests, whose follower polls often, so that tests need not wait.
    pub(crate) async fn for_test(store: &Store, world: &World) -> Self {
        Self::for_test_with(store, world, Limits::default()).await
    }

    pub(crate) async fn for_test_with(store: &Store, world: &World, limits: Limits) -> Self {
        let issuer = "https://holm.example".into();
        let settings =
            Settings { issuer, feed_poll: Duration::from_millis(10), outside: None, limits };
        Self::new(store.clone(), settings, world.clone()).await.unwrap()
    }
}
