//! Identities in memory, so that a known credential costs a hash and a look-up.

use crate::Identity;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use store::identity::Digest;
use types::Timestamp;

/// Credentials that are remembered at once. Only valid ones get in, so strangers cannot fill it.
const REMEMBERED_MAX: usize = 50_000;

#[derive(Default)]
pub(crate) struct Cache(RwLock<Known>);

#[derive(Default)]
struct Known {
    /// Grows whenever everything is forgotten: what was read before then must not be remembered after.
    epoch: u64,
    entries: HashMap<Digest, Entry>,
}

#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) identity: Arc<Identity>,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Cache {
    pub(crate) fn get(&self, credential: &Digest) -> Option<Entry> {
        self.0.read().entries.get(credential).cloned()
    }

    /// To be read before the store is, and passed to [`Cache::remember`].
    pub(crate) fn epoch(&self) -> u64 {
        self.0.read().epoch
    }

    pub(crate) fn remember(&self, epoch: u64, credential: Digest, entry: Entry) {
        let mut known = self.0.write();
        if known.epoch != epoch {
            return;
        }
        if known.entries.len() >= REMEMBERED_MAX {
            known.entries.clear();
        }
        known.entries.insert(credential, entry);
    }

    /// Forgets everything: identities depend on each other, and changes are rare.
    pub(crate) fn forget(&self) {
        let mut known = self.0.write();
        known.epoch += 1;
        known.entries.clear();
    }
}
