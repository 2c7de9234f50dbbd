//! Leases: what is in use right now, so that a collection does not remove it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::digest::Digest;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Held {
    /// An image with everything that its manifest names.
    Image(Digest),
    Blob(Digest),
    /// A layer, by the digest of its unpacked form.
    Layer(Digest),
}

pub(crate) type Counts = HashMap<Held, usize>;

#[derive(Clone, Default)]
pub(crate) struct Leases(Arc<Mutex<Counts>>);

/// Keeps an image, or what an import has stored so far, until it is dropped.
///
/// A lease lives in memory. After a restart, whoever runs instances takes theirs again before the
/// first [`Store::collect`](crate::Store::collect).
#[must_use = "what is leased may be removed as soon as the lease is dropped"]
pub struct Lease {
    leases: Leases,
    held: Mutex<Vec<Held>>,
}

impl Leases {
    pub(crate) fn take(&self) -> Lease {
        Lease { leases: self.clone(), held: Mutex::default() }
    }

    /// Blocks new leases for as long as the returned guard lives.
    pub(crate) fn freeze(&self) -> MutexGuard<'_, Counts> {
        self.0.lock()
    }
}

impl Lease {
    /// Adds something to the lease. Call it before the first moment at which a collection could
    /// find the thing unused.
    pub(crate) fn hold(&self, held: Held) {
        *self.leases.0.lock().entry(held).or_default() += 1;
        self.held.lock().push(held);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut counts = self.leases.0.lock();
        for held in self.held.get_mut().drain(..) {
            if let Some(count) = counts.get_mut(&held) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&held);
                }
            }
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&*self.held.lock()).finish()
    }
}
