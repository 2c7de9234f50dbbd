//! Gives the same answer again to the same request, where a model asks for that.
//!
//! The key is made of everything that decides on an answer: the workspace, the model and its
//! revision, the path with its query, and the body, byte for byte as it is sent on. A user who sets
//! `spec.cache` wants the same answer again, even where a temperature would make it vary, so the
//! temperature is not looked at.

use super::settings::ModelSettings;
use admission::{Permit, Pool};
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use types::kinds::model::ModelType;
use types::models::ModelRoute;

pub(crate) type Key = [u8; 32];

pub(crate) struct Cache {
    answers: Mutex<Answers>,
    room: Pool<String>,
    pub(crate) answer_max: usize,
}

#[derive(Default)]
struct Answers {
    by_key: HashMap<Key, Arc<Cached>>,
    /// In order of arrival.
    order: VecDeque<(Key, Instant)>,
}

/// An answer as it went to the caller.
pub(crate) struct Cached {
    pub(crate) headers: HeaderMap,
    /// The pieces as they came, so that a stream is a stream again.
    pub(crate) pieces: Vec<Bytes>,
    pub(crate) provider: ModelType,
    pub(crate) provider_model: String,
    came: Instant,
    until: Instant,
    owner: String,
    _room: Permit<String>,
}

/// An answer in transit, which is cached if all of it arrives.
pub(crate) struct Keeping {
    pub(crate) key: Key,
    pub(crate) life: Duration,
    pieces: Vec<Bytes>,
    pub(crate) length: usize,
    max: usize,
}

/// What an entry takes besides its bytes.
const OVERHEAD: usize = 1 << 10;
/// How many entries of replaced answers are tolerated in `order` before it is cleaned up.
const SPARE_PLACES: usize = 64;

impl Answers {
    /// Drops the entries of replaced answers. If the same answers were cached again and again,
    /// their old entries would fill the memory.
    fn forget_replaced(&mut self) {
        let Self { by_key, order } = self;
        if order.len() > 2 * by_key.len() + SPARE_PLACES {
            order.retain(|(key, came)| by_key.get(key).is_some_and(|kept| kept.came == *came));
        }
    }
}

impl Cache {
    pub(crate) fn new(settings: &ModelSettings) -> Self {
        Self {
            answers: Mutex::default(),
            room: Pool::new("bytes of cached answers of models", settings.cache),
            answer_max: settings.cache_answer_max,
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Cached>> {
        let found = self.answers.lock().by_key.get(key).cloned()?;
        (found.until > Instant::now()).then_some(found)
    }

    pub(crate) fn keep(
        &self,
        keeping: Keeping,
        owner: &String,
        headers: HeaderMap,
        (provider, provider_model): (ModelType, String),
    ) {
        let Keeping { key, life, pieces, length, .. } = keeping;
        let amount = (length + OVERHEAD) as u64;
        let now = Instant::now();
        let room = self.room.take(owner, amount).ok().or_else(|| {
            self.make_room(now, owner, amount);
            self.room.take(owner, amount).ok()
        });
        let Some(room) = room else { return };
        let cached = Cached {
            headers,
            pieces,
            provider,
            provider_model,
            came: now,
            until: now + life,
            owner: owner.clone(),
            _room: room,
        };
        let mut answers = self.answers.lock();
        let before = answers.by_key.insert(key, Arc::new(cached));
        answers.order.push_back((key, now));
        answers.forget_replaced();
        drop(answers);
        drop(before);
    }

    /// Drops expired answers, then the oldest ones, until this owner has room and so does the whole
    /// cache. Answers of others are dropped only when the whole cache is full.
    fn make_room(&self, now: Instant, owner: &String, amount: u64) {
        let mut gone = Vec::new();
        let mut answers = self.answers.lock();
        let Answers { by_key, order } = &mut *answers;
        // Entries of answers that were replaced meanwhile have another time.
        order.retain(|(key, came)| {
            let Some(kept) = by_key.get(key).filter(|kept| kept.came == *came) else {
                return false;
            };
            if kept.until <= now {
                gone.extend(by_key.remove(key));
                return false;
            }
            true
        });
        drop(answers);
        gone.clear();
        if self.room.limits().share < amount || self.has_room(owner, amount) {
            return;
        }
        let is_own_limit =
            self.room.held_by(owner).saturating_add(amount) > self.room.limits().share;
        let mut answers = self.answers.lock();
        let Answers { by_key, order } = &mut *answers;
        order.retain(|(key, _)| {
            let owned = by_key.get(key).is_some_and(|kept| kept.owner == *owner);
            if self.has_room(owner, amount) || (is_own_limit && !owned) {
                return true;
            }
            // Dropped under the lock: only that gives back the room that the next check counts.
            drop(by_key.remove(key));
            false
        });
    }

    fn has_room(&self, owner: &String, amount: u64) -> bool {
        let limits = self.room.limits();
        self.room.held().saturating_add(amount) <= limits.total
            && self.room.held_by(owner).saturating_add(amount) <= limits.share
    }
}

impl Keeping {
    pub(crate) fn new(key: Key, life: Duration, max: usize) -> Self {
        Self { key, life, pieces: Vec::new(), length: 0, max }
    }

    /// Adds a piece, and returns whether there is still room.
    pub(crate) fn add(&mut self, piece: &Bytes) -> bool {
        self.length += piece.len();
        // A small piece of a large buffer would keep the whole buffer alive.
        self.pieces.push(Bytes::copy_from_slice(piece));
        self.length <= self.max
    }
}

/// Computes the key. Each part is preceded by its length, which keeps the parts apart.
pub(crate) fn key<'b>(
    route: &ModelRoute,
    target: &str,
    headers: &[Option<&[u8]>],
    body: impl Iterator<Item = &'b Bytes>,
) -> Key {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for text in [route.workspace.as_str(), route.id.as_str(), &route.revision, target] {
        part(text.as_bytes());
    }
    for header in headers {
        part(header.unwrap_or(b"\0none"));
    }
    body.for_each(|piece| hash.update(piece));
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_answer_kept_again_and_again_takes_one_place() {
        let cache = Cache::new(&ModelSettings::default());
        for _ in 0..10_000 {
            let mut keeping = Keeping::new([7; 32], Duration::from_secs(60), 1 << 10);
            assert!(keeping.add(&Bytes::from_static(b"answer")));
            let answered = (ModelType::Openai, "m".to_owned());
            cache.keep(keeping, &"acme".to_owned(), HeaderMap::new(), answered);
        }
        assert!(cache.answers.lock().order.len() < 100);
        assert!(cache.get(&[7; 32]).is_some());
    }
}
