//! Locks of repositories.

use parking_lot::{Mutex, MutexGuard};

use crate::digest::Digest;

/// Number of locks for all repositories. Two that share a lock wait for each other, for
/// milliseconds.
const LOCKS: usize = 64;

/// Serializes additions to a repository and removals from it.
pub(crate) struct RepositoryLocks(Vec<Mutex<()>>);

impl Default for RepositoryLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl RepositoryLocks {
    /// Locks the repository whose name has this digest.
    pub(super) fn lock(&self, key: &Digest) -> MutexGuard<'_, ()> {
        // The first two digits of a digest are a number below 256.
        let number = usize::from_str_radix(&key.hex()[..2], 16).unwrap_or(0);
        self.0[number % self.0.len()].lock()
    }
}
