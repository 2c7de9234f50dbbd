//! Identities in memory, so that a known credential costs only a hash and a lookup.

use crate::Identity;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use store::identity::Digest;
use tokio::sync::watch;
use types::Timestamp;

/// Most credentials of one generation. Only valid ones are remembered, so strangers cannot fill it.
/// Somebody with many credentials only displaces those that were not used for a generation.
const GENERATION_MAX: usize = 25_000;

#[derive(Default)]
pub(crate) struct Cache {
    known: RwLock<Known>,
    forgotten: watch::Sender<()>,
}

#[derive(Default)]
struct Known {
    /// Rises whenever everything is forgotten: what was read before must not be remembered
    /// afterwards.
    epoch: u64,
    young: HashMap<Digest, Entry>,
    old: HashMap<Digest, Entry>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) identity: Arc<Identity>,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Cache {
    pub(crate) fn get(&self, credential: &Digest) -> Option<Entry> {
        {
            let known = self.known.read();
            match known.young.get(credential) {
                Some(entry) => return Some(entry.clone()),
                None if known.old.contains_key(credential) => {}
                None => return None,
            }
        }
        let mut known = self.known.write();
        let entry = known.old.remove(credential)?;
        known.insert(*credential, entry.clone());
        Some(entry)
    }

    /// Returns the epoch. Read it before the store, and pass it to [`Cache::remember`].
    pub(crate) fn epoch(&self) -> u64 {
        self.known.read().epoch
    }

    pub(crate) fn remember(&self, epoch: u64, credential: Digest, entry: Entry) {
        let mut known = self.known.write();
        if known.epoch == epoch {
            known.insert(credential, entry);
        }
    }

    /// Forgets everything: identities depend on each other, and changes are rare.
    pub(crate) fn forget(&self) {
        {
            let mut known = self.known.write();
            known.epoch += 1;
            known.young.clear();
            known.old.clear();
        }
        self.forgotten.send_replace(());
    }

    /// Returns a receiver that is notified each time everything was forgotten.
    pub(crate) fn forgotten(&self) -> watch::Receiver<()> {
        self.forgotten.subscribe()
    }
}

impl Known {
    fn insert(&mut self, credential: Digest, entry: Entry) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(credential, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(&number.to_string())
    }

    #[test]
    fn many_credentials_of_one_do_not_drive_out_those_that_others_use() {
        let cache = Cache::default();
        let entry = Entry { identity: Arc::new(Identity::system()), expires_at: None };
        cache.remember(0, Digest::of("used"), entry.clone());
        for number in 0..3 * GENERATION_MAX {
            cache.remember(0, digest(number), entry.clone());
            if number % 1000 == 0 {
                assert!(cache.get(&Digest::of("used")).is_some(), "after {number}");
            }
        }
        let known = cache.known.read();
        assert!(known.young.len() <= GENERATION_MAX && known.old.len() <= GENERATION_MAX);
    }
}
